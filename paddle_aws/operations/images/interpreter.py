"""The Python that runs a job's program here: `.venv-image`, or an environment with the job's Paddle
and requirements.

An environment is made once per content, in this machine's cache. Of the environment that it extends
it keeps Paddle and what the agent imports; all else is the program's to change, within the limits
of the image's Paddle, as in `make image`.

    python -m paddle_aws.operations.images.interpreter 3.3   makes the environment of that Paddle
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

from paddle_node.contract import AGENT_PACKAGES

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.program import LOCKS
from paddle_aws.operations.cluster import reasons
from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.images import conflicts, install
from paddle_aws.settings.file import place

PROJECT = Path(__file__).parents[3]
_AGENT = "requirements-agent.lock"
LOCKED = ("--require-hashes", "--no-deps", "--requirement")


def folder(
    job: TrainingJob,
    project: Path = PROJECT,
    say: Callable[[str], object] = lambda text: None,
) -> Path:
    """Returns the environment's bin/, and makes it if it is missing; `say` gets how far that is,
    every few seconds. Raises BadInput or Failed if the installation fails.
    """
    return _folder(job, project, partial(_make, say=say))


def find(job: TrainingJob, project: Path = PROJECT) -> Path | None:
    """Returns the same bin/ if it exists, or this Python's if that has all that the job needs.
    Installs nothing.
    """
    folder = _folder(job, project, _place)
    if (folder.parent / ".complete").exists() or (
        folder.parent == project / ".venv-image" and (folder / "python").exists()
    ):
        return folder
    try:
        fits = importlib.metadata.version("paddlepaddle").startswith(f"{job.chosen_paddle}.")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(sys.executable).parent if fits and not job.program.requirements else None


def _folder(
    job: TrainingJob, project: Path, place: Callable[[Path, Path, Path | None, list[str]], Path]
) -> Path:
    requirements = list(job.program.requirements)
    image = _image(job.chosen_paddle, project, place)
    lock = project / LOCKS[job.chosen_paddle]
    python = project / ".venv-image" / "bin" / "python"
    return (place(python, lock, image, requirements) if requirements else image) / "bin"


def _image(
    paddle: str, project: Path, place: Callable[[Path, Path, Path | None, list[str]], Path]
) -> Path:
    """Returns the environment with a Paddle and nothing of a program."""
    image, lock = project / ".venv-image", project / LOCKS[paddle]
    if paddle == "2.6":
        return image
    return place(image / "bin" / "python", lock, None, [*LOCKED, str(lock)])


def _place(python: Path, lock: Path, below: Path | None, requirements: list[str]) -> Path:
    # Of an environment below, its Paddle and the limits count; of one with Paddle, also what the
    # agent imports.
    files = [lock, lock.with_suffix(".in"), *([] if below else [lock.parent / _AGENT])]
    return place(
        "environments",
        python.resolve(),
        *(file.read_text() if file.exists() else "" for file in files),
        below,
        *sorted(requirements),
    )


def _make(
    python: Path,
    lock: Path,
    below: Path | None,
    requirements: list[str],
    say: Callable[[str], object] = lambda text: None,
) -> Path:
    """Makes a separate environment, or one that also sees the packages of `below`. `python` is of
    the version that the environment gets.
    """
    environment = _place(python, lock, below, requirements)
    # This project's own pip, whose release is locked.
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python"]
    environment.parent.mkdir(parents=True, exist_ok=True)
    with environment.with_suffix(".lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not (environment / ".complete").exists():
            shutil.rmtree(environment, ignore_errors=True)
            _run([python, "-m", "venv", "--without-pip", environment])
            install_here: list[str | Path] = [*pip, environment / "bin" / "python", "install"]
            if below is None:
                agent = [
                    "--require-hashes",
                    "--no-deps",
                    "--requirement",
                    str(lock.parent / _AGENT),
                ]
                _check(
                    *install.run(
                        [*install_here, "--target", environment / AGENT_PACKAGES, *agent], say
                    )
                )
            else:
                _extend(environment, below)
                freeze = _run([*pip, below / "bin" / "python", "list", "--format=freeze"])
                # With Paddle among them, its own requirements count, too.
                paddle = [line for line in freeze.split() if line.startswith("paddlepaddle")]
                # Of what Paddle needs, wheels alone: pip would build an old numpy for minutes, in
                # vain.
                limits = ["--only-binary=numpy,protobuf,pillow"]
                limits += ["--constraint", str(lock.with_suffix(".in"))]
                requirements = [*paddle, *limits, *requirements]
            _check(*install.run([*install_here, *requirements], say), lock)
            packages = _run([*pip, environment / "bin" / "python", "list", "--format=freeze"])
            if below is not None and "\nnumpy==1." in packages:
                limits = ["--constraint", str(lock.parent / "requirements-numpy1.in")]
                _check(*install.run([*install_here, *requirements, *limits], say), lock)
            (environment / ".complete").touch()
    return environment


def _extend(environment: Path, below: Path) -> None:
    """Lets an environment see the packages, the programs and the agent's packages of another."""
    (packages,), (added,) = (
        list(env.glob("lib/python3*/site-packages")) for env in (below, environment)
    )
    (added / "below.pth").write_text(f"{packages}\n")
    if (below / AGENT_PACKAGES).is_dir():
        (environment / AGENT_PACKAGES).symlink_to(below / AGENT_PACKAGES)
    for script in filter(
        Path.is_file, (below / "bin").iterdir()
    ):  # Paddle's launcher has to start this Python.
        head, _, rest = script.read_bytes().partition(b"\n")
        if head.startswith(b"#!") and b"python" in head and not script.is_symlink():
            (environment / "bin" / script.name).write_bytes(
                b"#!" + os.fsencode(environment / "bin" / "python") + b"\n" + rest
            )
            (environment / "bin" / script.name).chmod(0o755)


def _run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    _check(done.returncode, done.stderr)
    return done.stdout


def _check(code: int, errors: str, lock: Path | None = None) -> None:
    """Raises BadInput or Failed for a command that failed; `lock`: it installed what a program
    requires.
    """
    if code == 0:
        return
    paddle = next(
        (paddle for paddle, name in LOCKS.items() if lock and name.endswith(lock.name)), ""
    )
    if sentence := conflicts.sentence(errors, paddle) or reasons.first("install", errors, ""):
        raise BadInput(sentence)
    raise Failed(
        f"the program's requirements could not be installed: pip says {errors.strip()[-1000:]}"
    )


if __name__ == "__main__":
    _image(sys.argv[1], PROJECT, _make)
