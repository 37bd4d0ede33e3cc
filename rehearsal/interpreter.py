"""The Python of the rehearsed pods: `.venv-image`, or an environment with the job's Paddle and its program's requirements.

Promises: an environment is made once for its content, in this machine's cache, and used only when it is complete; the versions
in `.venv-image` are pip's constraints, as the image's are in `make image`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from k8s_charts.requirements import LOCKS
from k8s_charts.spec import TrainingJob
from operations import pip_words
from rehearsal.errors import Failed, Refused
from settings.cache import place


def folder(job: TrainingJob, project: Path) -> Path:
    """What is first on the pods' PATH. Raises Refused where the requirements cannot be installed."""
    image, lock = project / ".venv-image", project / LOCKS[job.paddle]
    python, wanted = image / "bin" / "python", list(job.program.requirements)
    if job.paddle != "2.6":
        image = _made(python, lock.read_text(), None, ["--require-hashes", "--no-deps", "--requirement", str(lock)])
    return (_made(python, lock.read_text(), image, wanted) if wanted else image) / "bin"


def _made(python: Path, lock: str, below: Path | None, wanted: list[str]) -> Path:
    """An environment of its own, or one in which `below`'s packages are seen as well. `python` has pip."""
    made = place("environments", python.resolve(), lock, below, *sorted(wanted))
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--python"]
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not (made / ".complete").exists():
            shutil.rmtree(made, ignore_errors=True)
            _run([python, "-m", "venv", "--without-pip", made])
            if below is not None:
                constraints = made / "constraints.txt"
                constraints.write_text(_run([*pip, below / "bin" / "python", "list", "--format=freeze"]))
                wanted = ["--constraint", str(constraints), *wanted]
                (packages,), (own,) = (list(env.glob("lib/python3*/site-packages")) for env in (below, made))
                (own / "below.pth").write_text(f"{packages}\n")
                for script in filter(Path.is_file, (below / "bin").iterdir()):  # Paddle's launcher has to start this Python.
                    head, _, rest = script.read_bytes().partition(b"\n")
                    if head.startswith(b"#!") and b"python" in head and not script.is_symlink():
                        (made / "bin" / script.name).write_bytes(b"#!" + os.fsencode(made / "bin" / "python") + b"\n" + rest)
                        (made / "bin" / script.name).chmod(0o755)
            _run([*pip, made / "bin" / "python", "install", "--quiet", *wanted])
            (made / ".complete").touch()
    return made


def _run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    if (sentence := pip_words.refusal(done.stderr)) is not None:
        raise Refused(sentence)
    raise Failed("the program's requirements could not be installed: pip says why", done.stderr[-2000:])
