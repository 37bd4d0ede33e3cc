"""The Python that runs a job's program here: `.venv-image`, or an environment with the job's Paddle
and requirements.

An environment with Paddle is made once for each content, in this machine's cache. The environment
Job's program builds a program's requirements there, and they are unpacked as in a pod.

    python -m paddle_aws.operations.images.interpreter 3.3   makes the environment of that Paddle
"""

import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from paddle_node import command_line, contract
from paddle_node.contract import AGENT_PACKAGES, ExitCode, Variable
from paddle_node.requirements import install

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.program import PackageIndex
from k8s_charts.spec.program_archive import LOCKS
from paddle_aws.operations.errors import BadInput, Failed
from paddle_settings.file import cache_path

PROJECT = Path(__file__).parents[3]
_AGENT = "requirements-agent.lock"
LOCKED = ("--require-hashes", "--no-deps", "--requirements")
Say = Callable[[str], object]
UNUSED_AFTER = 30 * 86_400.0
"""Seconds without use after which an environment leaves the cache."""


def folder(
    job: TrainingJob, project: Path = PROJECT, say: Say = lambda text: None, *, plain: bool = False
) -> Path:
    """Returns the environment's bin/, and makes it if it is missing; `say` gets how far that is,
    every few seconds. `plain`: that of the job's Paddle alone. Raises BadInput or Failed if the
    installation fails.
    """
    image = _image(job.chosen_paddle, project, say)
    if plain or not job.program.requirements:
        return image / "bin"
    packed, python = archive(job, project, say), image / "bin" / "python"
    unpacked = packed.with_suffix(".unpacked")
    with _lock_folder(packed):
        if not unpacked.is_dir():
            _remove_unused(packed)
            with install.reports(say, lambda: "unpacking"):
                _run(
                    [python, "-m", "paddle_node.requirements.archive", packed, unpacked],
                    {**os.environ, "PYTHONPATH": str(Path(command_line.__file__).parents[1])},
                )
    return unpacked / "bin"


def find(job: TrainingJob, project: Path = PROJECT) -> Path | None:
    """Returns the same bin/ if it exists, or this Python's if that has all that the job needs.
    Installs nothing.
    """
    image = _place_of_paddle(job.chosen_paddle, project)
    if job.program.requirements:
        packed = _place_of_archive(job, project)
        unpacked = packed.with_suffix(".unpacked")
        if not unpacked.is_dir():
            return None
        _mark_used(packed, *([] if image == project / ".venv-image" else [image]))
        return unpacked / "bin"
    usual = image == project / ".venv-image" and (image / "bin" / "python").exists()
    if usual or (image / ".complete").exists():
        if not usual:
            _mark_used(image)
        return image / "bin"
    try:
        fits = importlib.metadata.version("paddlepaddle").startswith(f"{job.chosen_paddle}.")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(sys.executable).parent if fits else None


def archive(job: TrainingJob, project: Path = PROJECT, say: Say = lambda text: None) -> Path:
    """Returns the folder of this machine's cache with the archive of the job's requirements, and
    builds it as the environment Job does. Raises BadInput or Failed.
    """
    if job.program.wheels is not None:
        raise BadInput(
            f"program.wheels is {job.program.wheels}: that folder lies on the job's volume, a "
            "rehearsal with --volume keep has one"
        )
    python = _image(job.chosen_paddle, project, say) / "bin"
    packed = _place_of_archive(job, project)
    digest = "0" * 64
    with _lock_folder(packed), tempfile.TemporaryDirectory() as name:
        packed.mkdir(exist_ok=True)
        root = Path(name).resolve()
        lay_limits(job, project, root)
        lines = contract.path(contract.REQUIREMENTS, {Variable.ROOT: name})
        lines.parent.mkdir(parents=True)
        lines.write_text(job.program.requirements_text)
        place = f"{contract.VOLUME_MOUNT}/{contract.ENVIRONMENTS}/{digest}"
        link = contract.path(place, {Variable.ROOT: str(root)})
        link.parent.mkdir(parents=True)
        link.symlink_to(packed)
        environ = {
            "HOME": name,
            "TMPDIR": name,
            **index_variables(),
            **index_settings(job.program.index),
            "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin",
            Variable.ROOT: name,
            Variable.ENVIRONMENT: digest,
        }
        program = project / "trainer_image" / "build_environment.py"
        with subprocess.Popen(
            [python / "python", program],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            last = ""
            for line in process.stdout or ():
                last = line.strip().removeprefix("environment: ")
                say(last)
        if process.returncode in (ExitCode.BAD_SETTING, ExitCode.SOURCE_UNREACHABLE):
            raise BadInput(last)
        if process.returncode:
            raise Failed(f"the program's requirements could not be installed: {last}")
    return packed


def lay_limits(job: TrainingJob, project: Path, root: Path) -> None:
    """Copies the image's constraints for its Paddle below `root`."""
    limits = project / LOCKS[job.chosen_paddle]
    for file, name in (
        (limits.with_suffix(".in"), contract.CONSTRAINTS),
        (limits.parent / Path(contract.NUMPY1).name, contract.NUMPY1),
    ):
        target = contract.path(name, {Variable.ROOT: str(root)})
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def index_variables() -> dict[str, str]:
    """Returns what pip and uv read on this machine: their settings, proxies and passwords, and uv's
    cache.
    """
    proxies = {"http_proxy", "https_proxy", "no_proxy", "all_proxy", "ssl_cert_file"}
    files = {
        "PIP_CONFIG_FILE": (".config/pip/pip.conf", ".pip/pip.conf"),
        "UV_CONFIG_FILE": (".config/uv/uv.toml",),
        "NETRC": (".netrc",),
    }
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "uv")
    variables = {"UV_CACHE_DIR": str(cache)}
    for variable, names in files.items():
        for name in names:
            if (place := Path.home() / name).exists():
                variables[variable] = str(place)
    return variables | {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "UV_")) or name.lower() in proxies or name == "NETRC"
    }


def index_settings(index: PackageIndex | None) -> dict[str, str]:
    """Returns the settings that the Job gets in place of this machine's; only the
    password of the same index is added.
    """
    if index is None:
        return {}
    url = os.environ.get("PIP_INDEX_URL", "")
    same = re.sub("//[^/]*@", "//", url).rstrip("/") == index.url.rstrip("/")
    wheels_alone = {"PIP_ONLY_BINARY": ":all:"} if index.secret else {}
    return {"PIP_INDEX_URL": url if same else index.url, "PIP_EXTRA_INDEX_URL": "", **wheels_alone}


def _place_of_paddle(paddle: str, project: Path) -> Path:
    image = project / ".venv-image"
    if paddle == "2.6":
        return image
    lock = project / LOCKS[paddle]
    files = [lock, lock.with_suffix(".in"), lock.parent / _AGENT]
    python = (image / "bin" / "python").resolve()
    return cache_path("environments", python, *_texts(files), None, *sorted([*LOCKED, str(lock)]))


def _place_of_archive(job: TrainingJob, project: Path) -> Path:
    lock = project / LOCKS[job.chosen_paddle]
    program, image = job.program, _place_of_paddle(job.chosen_paddle, project)
    python = (project / ".venv-image" / "bin" / "python").resolve()
    index = program.index and f"{program.index.url} {program.index.secret}"
    files = _texts([lock, lock.with_suffix(".in")])
    return cache_path("archives", python, *files, image, index, *sorted(program.requirements))


def _texts(files: Sequence[Path]) -> list[str]:
    return [file.read_text() if file.exists() else "" for file in files]


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Keeps other processes from making the same folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _mark_used(folder)
    with folder.with_suffix(".lock").open("a") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


def _mark_used(*folders: Path) -> None:
    """The lock's time says when a folder was used last."""
    for folder in folders:
        folder.with_suffix(".lock").touch()


def _remove_unused(new: Path) -> None:
    """Makes room for a new folder, whose lock the caller holds: removes the folders beside it that
    have not been used for long and that nobody holds.
    """
    for lock in new.parent.glob("*.lock"):
        if time.time() - lock.stat().st_mtime < UNUSED_AFTER:
            continue
        with lock.open("a") as lock_file:
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            removed = lock.with_suffix(".removed")
            for place in (removed, lock.with_suffix(""), lock.with_suffix(".unpacked")):
                # Renamed first, so that nobody takes a half-removed folder for a whole one.
                if place.is_dir():
                    place = place.rename(removed)
                    shutil.rmtree(place, ignore_errors=True)


def _image(paddle: str, project: Path, say: Say) -> Path:
    """Returns the environment with a Paddle and nothing of a program; makes it if it is missing."""
    environment, lock = _place_of_paddle(paddle, project), project / LOCKS[paddle]
    if paddle == "2.6":
        return environment
    with _lock_folder(environment):
        if not (environment / ".complete").exists():
            shutil.rmtree(environment, ignore_errors=True)
            _remove_unused(environment)
            python = project / ".venv-image" / "bin" / "python"
            _run([python, "-m", "venv", "--without-pip", environment])
            into: list[str | Path] = ["install", "--python", environment / "bin" / "python"]
            agent: list[str | Path] = [
                "--target",
                environment / AGENT_PACKAGES,
                *LOCKED,
                lock.parent / _AGENT,
            ]
            for words in ([*into, *agent], [*into, *LOCKED, lock]):
                code, _, messages = install.run(words, say)
                if code:
                    raise Failed(f"Paddle could not be installed: {messages.strip()[-1000:]}")
            # Its byte code, which pods do not write.
            with install.reports(say, lambda: "compiling Paddle"):
                _run([environment / "bin" / "python", "-c", "import paddle"])
            (environment / ".complete").touch()
    return environment


def _run(command: Sequence[str | Path], environ: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"the environment could not be made: {done.stderr.strip()[-1000:]}")


if __name__ == "__main__":
    what = f"setup: the environment with Paddle {sys.argv[1]}"
    print(f"{what} (about 900 MB)", flush=True)
    _image(sys.argv[1], PROJECT, lambda text: print(f"{what}: {text}", flush=True))
