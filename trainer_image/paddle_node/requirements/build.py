"""The environment Job: builds what a program requires, beside the image's Paddle, into one archive
on the volume.

Strangers' code runs here (a setup.py), so the pod has no credentials, and sees one folder of the
volume. An environment that is there already ends the Job at once.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from paddle_node import contract
from paddle_node.contract import ExitCode, Variable
from paddle_node.environment import Reader
from paddle_node.failure import Failure, SettingError
from paddle_node.requirements import archive, conflicts, install
from paddle_node.retry import disk_full, retry

_UNREACHABLE = re.compile(
    r"Temporary failure in name resolution|Connection refused|Network is unreachable"
    r"|[Rr]ead timed out|ConnectTimeoutError|NewConnectionError|NameResolutionError"
    r"|Max retries exceeded|Connection broken|HTTP error 5\d\d|5\d\d Server Error"
)


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Builds, and returns the exit code; if it is not 0, its last line on stderr is one
    sentence.
    """
    signal.signal(signal.SIGTERM, _terminated)
    try:
        build(environ, _say)
        return ExitCode.DONE
    except Failure as failure:
        code, sentence = failure.code, failure.sentence
    except OSError as error:
        code, sentence = 1, f"{error.filename or 'the volume'}: {error.strerror or error}"
        if disk_full(error):
            code = ExitCode.VOLUME_FULL
            sentence = f"{error.filename or 'the disk'} has no room for the environment"
            sentence += ": make room on the volume, or raise data_resources.scratch"
    except KeyboardInterrupt:
        code, sentence = ExitCode.TERMINATED, "interrupted"
    print(f"environment: {sentence}", file=sys.stderr, flush=True)
    return code


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"environment: {text}", flush=True)


def build(environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Builds the environment unless it is there. Raises Failure, OSError."""
    read, began = Reader(environ), time.monotonic()
    target = archive.folder(environ)
    if (there := retry(lambda: archive.find(target), say)) is not None:
        say(f"it is there already: {', '.join(there.packages)}")
        return
    place = contract.path(contract.ENVIRONMENT, environ)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        archive.make(place)
        before = _files(place)
        packages = _install(place, read, environ, say)
        files = [name for name, stamp in _files(place).items() if before.get(name) != stamp]
        say(f"packing {len(files)} files")
        record = archive.add(target, place, files, packages)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    say(
        f"ready after {time.monotonic() - began:.0f} s, {record.size / 1e6:,.0f} MB: "
        f"{', '.join(record.packages)}"
    )


def _files(place: Path) -> dict[str, tuple[int, ...]]:
    """Returns the files and links below a folder, each with what changes if it is written."""
    files = dict[str, tuple[int, ...]]()
    for path, folders, names in os.walk(place):
        for name in (*names, *(name for name in folders if Path(path, name).is_symlink())):
            status = Path(path, name).lstat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            files[os.path.relpath(Path(path, name), place)] = stamp
    return files


def _install(
    place: Path, read: Reader, environ: Mapping[str, str], say: Callable[[str], None]
) -> list[str]:
    """Installs the requirements within the limits of the image's Paddle, which stays as it is.
    Returns what was added.
    """
    requirements = list(read.words(Variable.REQUIREMENTS))
    hashed = any("--hash=" in line for line in requirements)
    paddle = _paddle()
    lines = place.with_name("requirements.txt")
    # With Paddle among them, its own requirements count, too; a file with hashes is complete.
    lines.write_text("\n".join([*([] if hashed or not paddle else [paddle]), *requirements]) + "\n")
    # Of what Paddle needs, wheels alone: pip would build an old numpy for minutes, in vain.
    wheels_alone = environ.get("PIP_ONLY_BINARY") or "numpy,protobuf,pillow"
    options = ["--requirement", str(lines), f"--only-binary={wheels_alone}"]
    if wheels := read.text(Variable.WHEELS, ""):
        options += ["--no-index", "--find-links", str(contract.path(wheels, environ))]
    for limits in _limits(environ, contract.CONSTRAINTS):
        options += ["--constraint", limits]
    pip = [*_pip(place), "--python", str(place / "bin" / "python")]
    run = partial(_run, pip, environ=environ, paddle=paddle, say=say)
    run(["install", *options])
    if next(_versions([*_packages(place), *sys.path], "numpy"), "").startswith("1."):
        for limits in _limits(environ, contract.NUMPY1):
            run(["install", *options, "--constraint", limits])
    lines.unlink()
    added = importlib.metadata.distributions(path=_packages(place))
    return sorted(f"{package.metadata['Name']}=={package.version}" for package in added)


def _packages(place: Path) -> list[str]:
    return [str(path) for path in place.glob("lib/python3*/site-packages")]


def _versions(path: list[str], name: str) -> Iterator[str]:
    """Yields the versions of a package in the order in which Python would find them."""
    for package in importlib.metadata.distributions(name=name, path=path):
        yield package.version


def _limits(environ: Mapping[str, str], name: str) -> list[str]:
    file = contract.path(name, environ)
    return [str(file)] if file.is_file() else []


def _paddle() -> str:
    """Returns the image's Paddle as a requirement; empty if it has none."""
    for distribution in importlib.metadata.distributions():
        if (name := distribution.metadata["Name"] or "").lower().startswith("paddlepaddle"):
            return f"{name}=={distribution.version}"
    return ""


def _pip(place: Path) -> list[str]:
    python = sys.executable
    if importlib.util.find_spec("pip") is None:
        own = place.with_name("pip")
        subprocess.run([sys.executable, "-m", "venv", str(own)], check=True)
        python = str(own / "bin" / "python")
    return [python, "-m", "pip", "--disable-pip-version-check"]


def _run(
    pip: Sequence[str],
    words: Sequence[str],
    environ: Mapping[str, str],
    paddle: str,
    say: Callable[[str], None],
) -> None:
    """Runs pip. Raises Failure with the one sentence that a user can act on."""
    no_cache = {} if "PIP_CACHE_DIR" in environ else {"PIP_NO_CACHE_DIR": "1"}
    code, errors = install.run([*pip, *words], say, environ={**environ, **no_cache})
    if code == 0:
        return
    with contextlib.suppress(IndexError):
        paddle = re.findall(r"==(\d+\.\d+)", paddle)[0]
    if sentence := conflicts.sentence(errors, paddle):
        raise SettingError(sentence)
    if "No space left on device" in errors or "Disk quota exceeded" in errors:
        raise SettingError(
            "the pod's scratch has no room for program.requirements: raise data_resources.scratch"
        )
    if _UNREACHABLE.search(errors):
        raise Failure(
            ExitCode.SOURCE_UNREACHABLE,
            f"the package index cannot be reached (pip says {_UNREACHABLE.findall(errors)[0]}): "
            "another try may help; program.index and program.wheels name other places",
        )
    raise SettingError(conflicts.fault(errors) or f"pip says {conflicts.last_line(errors)}")


if __name__ == "__main__":
    sys.exit(main())
