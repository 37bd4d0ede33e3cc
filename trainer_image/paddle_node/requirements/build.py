"""The environment Job: builds what a program requires, beside the image's Paddle, into one archive
on the volume.

Code of package authors (a setup.py) runs here, so the pod has no credentials and sees one folder of
the volume. An environment that is there already ends the Job at once.
"""

import compileall
import contextlib
import ctypes
import importlib.machinery
import importlib.metadata
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from paddle_node import contract
from paddle_node.contract import ExitCode, Variable
from paddle_node.environment import Reader
from paddle_node.failure import BadSetting, Failure
from paddle_node.requirements import archive, faults, install, refusals
from paddle_node.retry import disk_full, retry

_NEEDED_BY_PADDLE = ("numpy", "protobuf", "pillow")
"""Of these wheels alone: uv would build an old numpy for minutes, in vain."""
_PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): adopt orphaned descendants, as PID 1 does."""


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Builds, and returns the exit code; if it is not 0, its last line on stderr is one
    sentence.
    """
    signal.signal(signal.SIGTERM, _end_process)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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
    if code != ExitCode.TERMINATED:
        with contextlib.suppress(Failure, OSError):
            lasting = code in contract.FAIL_JOB
            refusals.add(archive.folder(environ), environ, sentence, lasting=lasting)
    print(f"environment: {sentence}", file=sys.stderr, flush=True)
    return code


def bake(requirements: str) -> int:
    """Installs the packages of a file into this Python's own environment, as the build of an image
    does. Returns the exit code; if it is not 0, the last line on stderr is one sentence.
    """
    with tempfile.TemporaryDirectory() as scratch:
        try:
            installer = Installer(Path(scratch), os.environ, _say)
            chosen = installer.resolve(Path(requirements).read_text().split("\n"))
            installer.install(chosen, Path(sys.executable))
            return ExitCode.DONE
        except Failure as failure:
            print(f"environment: {failure.sentence}", file=sys.stderr, flush=True)
            return failure.code


def _end_process(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"environment: {text}", flush=True)


def build(environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Builds the environment unless it is there. Raises Failure, OSError."""
    began, target = time.monotonic(), archive.folder(environ)
    retry(lambda: refusals.remove(target, environ), say)
    _, there = retry(lambda: archive.find(target), say)
    if there is not None:
        say(f"it is there already: {', '.join(there.packages)}")
        return
    place = contract.path(contract.ENVIRONMENT, environ)
    place.parent.mkdir(parents=True, exist_ok=True)
    files, packages = _install(place, environ, say)
    say(f"packing {len(files)} files")
    with install.reports(say, lambda: "packing"):
        record = archive.add(target, place, files, packages)
    size = (target / record.archive).stat().st_size
    say(
        f"ready after {time.monotonic() - began:.0f} s, {size / 1e6:,.0f} MB: "
        f"{', '.join(record.packages)}"
    )


def _files(place: Path) -> set[Path]:
    return {file for file in place.rglob("*") if file.is_symlink() or not file.is_dir()}


def _install(
    place: Path, environ: Mapping[str, str], say: Callable[[str], None]
) -> tuple[list[str], list[str]]:
    """Installs the requirements in an empty environment, within the limits of the image's Paddle,
    which stays as it is. Returns the files and the packages that were added.
    """
    file = contract.path(contract.REQUIREMENTS, environ)
    try:
        requirements = file.read_text().splitlines()
    except FileNotFoundError:
        raise BadSetting(
            f"{file} does not exist: mount the ConfigMap with the requirements there"
        ) from None
    installer = Installer(place.parent, environ, say)
    chosen = installer.resolve(requirements)
    archive.make(place)
    before = _files(place)
    links = {file: file.readlink() for file in before if file.is_symlink()}
    installer.install(chosen, place / "bin" / "python")
    for file, target in links.items():
        if not file.is_symlink() or file.readlink() != target:
            raise BadSetting(
                f"program.requirements change {file.relative_to(place)}, which is the image's: "
                "leave the package out that does"
            )
    added = list(importlib.metadata.distributions(path=_packages(place)))
    _keep_paddle(place, added)
    return (
        sorted(str(file.relative_to(place)) for file in _files(place) - before),
        sorted(f"{package.metadata['Name']}=={package.version}" for package in added),
    )


class Installer:
    """Runs uv beside the image's Paddle, with its files in `scratch`."""

    def __init__(
        self, scratch: Path, environ: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._scratch, self._environ, self._say = scratch, environ, say
        self._paddle = _find_paddle()
        self._constraints = self._limits(contract.CONSTRAINTS)

    def resolve(self, requirements: Sequence[str]) -> list[str]:
        """Returns the requirements of what the image lacks, each with its version or address, and
        its hashes if there are any. Nothing is installed yet. Raises Failure.
        """
        hashed = any("--hash=" in line for line in requirements)
        # With Paddle among them, its own requirements count, too; a file with hashes is complete.
        paddle = [] if hashed or not self._paddle else [self._paddle_version()]
        lines = self._scratch / "requirements.txt"
        lines.write_text("\n".join([*paddle, *requirements]) + "\n")
        words = ["install", "--dry-run", "--output-format", "json", "--requirements", str(lines)]
        # uv sees no packages of an environment below another one: ask about the image's own.
        words += ["--break-system-packages", "--python", self._image_python()]
        for file in self._constraints:
            words += ["--constraints", str(file)]
        if hashed:
            words += ["--require-hashes"]

        def choose(*more: str) -> dict[str, str]:
            answer = json.loads(self._run([*words, *more]))
            changes = [change for change in answer["changes"] if change["action"] != "uninstalled"]
            return {_normal(change["name"]): change["version"] for change in changes}

        chosen = choose()
        if limits := self._missing_limits(chosen):
            chosen = choose("--constraints", limits)
        lines.unlink()
        given = {_normal(line): line for line in requirements}
        return [
            given[name]
            if hashed or "@" in given.get(name, "").partition(";")[0]
            else f"{name}=={version}"
            for name, version in chosen.items()
        ]

    def install(self, chosen: Sequence[str], python: Path) -> None:
        """Installs what `resolve` chose, with byte code. Raises Failure."""
        lines = self._scratch / "chosen.txt"
        lines.write_text("".join(f"{line}\n" for line in chosen))
        self._run(["install", "--no-deps", "--requirements", str(lines), "--python", str(python)])
        lines.unlink()
        # By this Python: uv would run the new one's (*.pth) beside the password of the index.
        for folder in _packages(python.parents[1]):
            with install.reports(self._say, lambda: "compiling"):
                compileall.compile_dir(folder, quiet=2, workers=0)

    def _limits(self, name: str) -> list[Path]:
        file = contract.path(name, self._environ)
        return [file] if file.is_file() else []

    def _missing_limits(self, chosen: Mapping[str, str]) -> str:
        """Returns the file with the limits beside numpy 1.x, if the chosen packages have to keep
        them, and the image's own do not include them.
        """
        versions = (package.version for package in importlib.metadata.distributions(name="numpy"))
        numpy = chosen.get("numpy") or next(versions, "")
        constraints = [file.read_text() for file in self._constraints]
        for limits in self._limits(contract.NUMPY1) if numpy.startswith("1.") else ():
            limited = re.findall(r"(?m)^[A-Za-z0-9][\w.-]*", limits.read_text())
            included = any(limits.name in text for text in constraints)
            if not included and chosen.keys() & set(map(_normal, limited)):
                return str(limits)
        return ""

    def _paddle_version(self) -> str:
        """Returns the image's Paddle as a requirement; empty if it has none."""
        return f"{self._paddle.metadata['Name']}=={self._paddle.version}" if self._paddle else ""

    def _image_python(self) -> str:
        """Returns the Python whose own packages are Paddle's: this one, or that of a base image
        with Paddle, which this environment sees.
        """
        if self._paddle is None:
            return sys.executable
        folder = Path(str(self._paddle.locate_file(""))).resolve()
        inside = folder.is_relative_to(Path(sys.prefix).resolve())
        return sys.executable if inside else str(Path(sys.base_prefix, "bin", "python3"))

    def _run(self, words: Sequence[str]) -> str:
        """Runs uv, and returns its output. Raises Failure with the one sentence that a user can act
        on.
        """
        environ, options = self._environ, list[str]()
        for name in _NEEDED_BY_PADDLE if "PIP_ONLY_BINARY" not in environ else ():
            options += ["--only-binary", name]
        if wheels := Reader(environ).text(Variable.WHEELS, ""):
            options += ["--no-index", "--find-links", str(contract.path(wheels, environ))]
        variables = {"UV_CACHE_DIR": str(self._scratch / "uv-cache"), **environ}
        try:
            code, output, messages = install.run([*words, *options], self._say, variables)
        finally:
            _end_orphans()
        if code == 0:
            return output
        if password := environ.get("PIP_INDEX_URL", "").rpartition("@")[0].rpartition("//")[2]:
            messages = messages.replace(password, "****")
        print(messages, file=sys.stderr, flush=True)
        if absent := re.search(r"no\s+version\s+of\s+(([\w.-]+)==[\w.+!-]*\w)", messages):
            asked = ["compile", "-", "--no-deps", "--no-header", "--no-annotate", "--quiet"]
            code, newest, _ = install.run(
                [*asked, *options], self._say, variables, absent[2].encode()
            )
            if code == 0:
                raise BadSetting(
                    f"program.requirements need {absent[1]}, a version that the package index does "
                    f"not have: its newest for this Python is {newest.strip()}"
                )
        texts = "\n".join(file.read_text() for file in self._constraints)
        limits = re.findall(r"(?m)^(?!paddlepaddle)[a-z][\w.-]*[<>=!~][^\s#]*", texts)
        raise faults.explain(messages, self._paddle_version(), limits)


def _find_paddle() -> importlib.metadata.Distribution | None:
    for package in importlib.metadata.distributions():
        if (package.metadata["Name"] or "").lower().startswith("paddlepaddle"):
            return package
    return None


def _keep_paddle(place: Path, packages: Sequence[importlib.metadata.Distribution]) -> None:
    """Raises BadSetting, which names who brought it, if the environment has a Paddle."""
    suffixes = ("", *importlib.machinery.all_suffixes())
    # A package may bring lib64, a link to lib, and "..".
    (folder,) = (Path(path).resolve() for path in _packages(place))
    modules = {folder / f"paddle{suffix}" for suffix in suffixes}
    for package in packages:
        name, side = _normal(package.metadata["Name"]), ""
        if name.startswith("paddlepaddle"):
            askers = [
                f" (for {asker.metadata['Name']})"
                for asker in packages
                if name in map(_normal, asker.requires or ())
            ]
            side = f"{name} {package.version}{''.join(askers[:1])}"
        elif any(_replaces(Path(file.locate()), modules) for file in package.files or ()):
            side = f"the `paddle` of {package.metadata['Name']} {package.version}"
        if side:
            raise BadSetting(
                f"program.requirements bring {side}, which would replace the image's Paddle: leave "
                "that package out, or set another `paddle` or `image`"
            )


def _replaces(file: Path, modules: set[Path]) -> bool:
    file = Path(os.path.realpath(file))
    return not modules.isdisjoint((file, *file.parents))


def _packages(place: Path) -> list[str]:
    return [str(path) for path in place.glob("lib/python3*/site-packages")]


def _normal(requirement: str | None) -> str:
    """Returns the package's name alone, as pip compares it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement or "", maxsplit=1)[0]).lower()


def _end_orphans() -> None:
    """Kills what a package's build left running: it could change what is packed."""
    tasks = Path("/proc/self/task")
    while pids := [int(pid) for file in tasks.glob("*/children") for pid in _words(file)]:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:  # Its thread has ended.
        return []


if __name__ == "__main__":
    sys.exit(main())
