"""The Python that runs a job's program here: `.venv-image`, or an environment with the job's Paddle
and requirements.

An environment is made once per content, in this machine's cache. The versions of the environment
that it extends constrain its own, as the image's do in `make image`.
"""

import fcntl
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.program import LOCKS
from operations.cluster import reasons
from operations.errors import BadInput, Failed
from operations.images import install
from settings.file import place

PROJECT = Path(__file__).parents[2]


def folder(
    job: TrainingJob,
    project: Path = PROJECT,
    say: Callable[[str], object] = lambda text: None,
) -> Path:
    """Returns the environment's bin/, and makes it if it is missing; `say` gets how far that is,
    every few seconds. Raises BadInput or Failed if the installation fails.
    """
    return _folder(job, project, partial(_made, say=say))


def found(job: TrainingJob, project: Path = PROJECT) -> Path | None:
    """Returns the same bin/ if it exists, or this Python's if that has all that the job needs.
    Installs nothing.
    """
    made = _folder(job, project, _place)
    if (made.parent / ".complete").exists() or (
        made.parent == project / ".venv-image" and (made / "python").exists()
    ):
        return made
    try:
        fits = importlib.metadata.version("paddlepaddle").startswith(f"{job.paddle}.")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(sys.executable).parent if fits and not job.program.requirements else None


def _folder(
    job: TrainingJob, project: Path, made: Callable[[Path, Path, Path | None, list[str]], Path]
) -> Path:
    image, lock = project / ".venv-image", project / LOCKS[job.paddle]
    python, wanted = image / "bin" / "python", list(job.program.requirements)
    if job.paddle != "2.6":
        image = made(
            python, lock, None, ["--require-hashes", "--no-deps", "--requirement", str(lock)]
        )
    return (made(python, lock, image, wanted) if wanted else image) / "bin"


def _place(python: Path, lock: Path, below: Path | None, wanted: list[str]) -> Path:
    return place(
        "environments",
        python.resolve(),
        lock.read_text() if lock.exists() else "",
        below,
        *sorted(wanted),
    )


def _made(
    python: Path,
    lock: Path,
    below: Path | None,
    wanted: list[str],
    say: Callable[[str], object] = lambda text: None,
) -> Path:
    """Makes a separate environment, or one that also sees the packages of `below`. `python` has
    pip.
    """
    made = _place(python, lock, below, wanted)
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--python"]
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not (made / ".complete").exists():
            shutil.rmtree(made, ignore_errors=True)
            _run([python, "-m", "venv", "--without-pip", made])
            if below is not None:
                constraints = made / "constraints.txt"
                constraints.write_text(
                    _run([*pip, below / "bin" / "python", "list", "--format=freeze"])
                )
                wanted = ["--constraint", str(constraints), *wanted]
                (packages,), (own,) = (
                    list(env.glob("lib/python3*/site-packages")) for env in (below, made)
                )
                (own / "below.pth").write_text(f"{packages}\n")
                for script in filter(
                    Path.is_file, (below / "bin").iterdir()
                ):  # Paddle's launcher has to start this Python.
                    head, _, rest = script.read_bytes().partition(b"\n")
                    if head.startswith(b"#!") and b"python" in head and not script.is_symlink():
                        (made / "bin" / script.name).write_bytes(
                            b"#!" + os.fsencode(made / "bin" / "python") + b"\n" + rest
                        )
                        (made / "bin" / script.name).chmod(0o755)
            _check(*install.run([*pip, made / "bin" / "python", "install", *wanted], say))
            (made / ".complete").touch()
    return made


def _run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    _check(done.returncode, done.stderr)
    return done.stdout


def _check(code: int, errors: str) -> None:
    """Raises BadInput or Failed for a command that failed."""
    if code == 0:
        return
    if sentence := reasons.first("install", errors, ""):
        raise BadInput(sentence)
    raise Failed(
        f"the program's requirements could not be installed: pip says {errors.strip()[-1000:]}"
    )
