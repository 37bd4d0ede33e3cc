"""The environment Job: builds what a program requires, beside the image's Paddle, into one archive
on the volume.

Code of package authors (a setup.py) runs here, so the pod has no credentials and sees one folder of
the volume. An environment that is there already ends the Job at once.
"""

import contextlib
import ctypes
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from paddle_node import contract
from paddle_node.contract import ExitCode, Variable
from paddle_node.environment import Reader
from paddle_node.failure import BadSetting, Failure
from paddle_node.requirements import archive, conflicts, install, refusals
from paddle_node.retry import disk_full, retry

_UNREACHABLE = re.compile(
    r"Temporary failure in name resolution|Connection refused|Network is unreachable"
    r"|[Rr]ead timed out|ConnectTimeoutError|NewConnectionError|NameResolutionError"
    r"|Max retries exceeded|Connection broken|HTTP error 5\d\d|5\d\d Server Error"
)
_ABSENT = re.compile(
    r"\(from versions: none\)\s+ERROR: No matching distribution found for ([A-Za-z0-9][\w.-]*)"
)
_REFUSED = re.compile(
    r"^Could not fetch URL [^\n]*?(?:too many (\d{3}) error responses"
    r"|: (\d{3}) (?:Client|Server) Error|(confirming the ssl certificate)|(connection error))",
    re.MULTILINE,
)
"""Why `pip index versions -vv` got no page of a package."""
_NO_PROCESSES = f"""
def refuse(event, _):
    if event == "subprocess.Popen":
        raise PermissionError("{conflicts.WHEELS_ALONE}")

sys.addaudithook(refuse)
"""
"""For pip's own process, which runs nobody else's code: it builds in processes of its own."""
_PASSING = re.compile(r"5\d\d|408|429")
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


def _end_process(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"environment: {text}", flush=True)


def build(environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Builds the environment unless it is there. Raises Failure, OSError."""
    read, began = Reader(environ), time.monotonic()
    target = archive.folder(environ)
    retry(lambda: refusals.remove(target, environ), say)
    _, there = retry(lambda: archive.find(target), say)
    if there is not None:
        say(f"it is there already: {', '.join(there.packages)}")
        return
    place = contract.path(contract.ENVIRONMENT, environ)
    place.parent.mkdir(parents=True, exist_ok=True)
    files, packages = _install(place, read, environ, say)
    say(f"packing {len(files)} files")
    record = archive.add(target, place, files, packages)
    size = (target / record.archive).stat().st_size
    say(
        f"ready after {time.monotonic() - began:.0f} s, {size / 1e6:,.0f} MB: "
        f"{', '.join(record.packages)}"
    )


def _links(place: Path) -> dict[Path, Path]:
    """Returns where the empty environment leads to the image."""
    folders = (place, place / "bin")
    return {
        file: file.readlink() for path in folders for file in path.iterdir() if file.is_symlink()
    }


def _install(
    place: Path, read: Reader, environ: Mapping[str, str], say: Callable[[str], None]
) -> tuple[list[str], list[str]]:
    """Installs the requirements in an empty environment, within the limits of the image's Paddle,
    which stays as it is. Returns the files and the packages that were added.
    """
    requirements = _requirements(environ)
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
    pip = _pip(place)

    def run(*more: str) -> None:
        archive.make(place)
        if wheels_alone == ":all:":
            # pip does not apply that to a package that another one names by its address.
            hook = Path(*_packages(place), "no_processes.pth")
            hook.write_text(f"import sys; exec({_NO_PROCESSES!r})\n")
        links = _links(place)
        inside = ["--python", str(place / "bin" / "python"), "install"]
        _run(pip, [*inside, *options, *more], environ, paddle, say)
        for link in links.items() - _links(place).items():
            raise BadSetting(
                f"program.requirements change {link[0].relative_to(place)}, which is the image's: "
                "leave the package out that does"
            )

    run()
    if limits := _missing_limits(place, environ):
        # The environment's Python would run what was just installed (*.pth) beside the password of
        # the index: this run begins with an empty one.
        run("--constraint", limits)
    lines.unlink()
    added = list(importlib.metadata.distributions(path=_packages(place)))
    _keep_paddle(place, added)
    files = {os.path.relpath(file.locate(), place) for dist in added for file in dist.files or ()}
    return (
        [name for name in files if _is_there(place / name)],
        sorted(f"{package.metadata['Name']}=={package.version}" for package in added),
    )


def _is_there(file: Path) -> bool:
    """Whether a listed file exists: some packages list folders, too, or missing files."""
    try:
        return file.exists() and not file.is_dir()
    except OSError:  # A name that is too long for any disk.
        return False


def _requirements(environ: Mapping[str, str]) -> list[str]:
    file = contract.path(contract.REQUIREMENTS, environ)
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        raise BadSetting(
            f"{file} does not exist: mount the ConfigMap with the requirements there"
        ) from None


def _missing_limits(place: Path, environ: Mapping[str, str]) -> str:
    """Returns the file with the limits beside numpy 1.x, if the installed packages have to keep
    them, and the image's own do not include them.
    """
    path = _packages(place)
    if not next(_versions([*path, *sys.path], "numpy"), "").startswith("1."):
        return ""
    constraints = [Path(file).read_text() for file in _limits(environ, contract.CONSTRAINTS)]
    for limits in _limits(environ, contract.NUMPY1):
        limited = re.findall(r"(?m)^[A-Za-z0-9][\w.-]*", Path(limits).read_text())
        if not any(Path(limits).name in text for text in constraints) and any(
            list(_versions(path, name)) for name in limited
        ):
            return limits
    return ""


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
        separate = place.with_name("pip")
        subprocess.run([sys.executable, "-m", "venv", str(separate)], check=True)
        python = str(separate / "bin" / "python")
    return [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def _run(
    pip: Sequence[str],
    words: Sequence[str],
    environ: Mapping[str, str],
    paddle: str,
    say: Callable[[str], None],
) -> None:
    """Runs pip. Raises Failure with the one sentence that a user can act on."""
    no_cache = {} if "PIP_CACHE_DIR" in environ else {"PIP_NO_CACHE_DIR": "1"}
    variables = {**environ, **no_cache}
    try:
        code, errors = install.run([*pip, *words], say, environ=variables)
    finally:
        _end_orphans()
    if code == 0:
        return
    if password := environ.get("PIP_INDEX_URL", "").rpartition("@")[0].rpartition("//")[2]:
        errors = errors.replace(password, "****")
    print(errors, file=sys.stderr, flush=True)
    pip_errors = conflicts.extract_pip_errors(errors)
    with contextlib.suppress(IndexError):
        paddle = re.findall(r"==(\d+\.\d+)", paddle)[0]
    if sentence := conflicts.explain_conflict(pip_errors, paddle):
        raise BadSetting(sentence)
    if "No space left on device" in pip_errors or "Disk quota exceeded" in pip_errors:
        raise BadSetting(
            "the pod's scratch has no room for program.requirements: raise data_resources.scratch"
        )
    if match := _UNREACHABLE.search(pip_errors):
        raise _index_failure(f"pip says {match[0]}")
    if absent := _ABSENT.search(pip_errors):
        _ask(pip, absent[1], variables)
    raise BadSetting(conflicts.explain_fault(errors) or f"pip says {conflicts.last_line(errors)}")


def _index_failure(why: str) -> Failure:
    return Failure(
        ExitCode.SOURCE_UNREACHABLE,
        f"the package index cannot be reached ({why}): another try may help; program.index and "
        "program.wheels name other places",
    )


def _ask(pip: Sequence[str], package: str, environ: Mapping[str, str]) -> None:
    """Asks the index once more for a package that pip did not find, which it says also of an index
    that is down or refuses. Raises Failure for such an index.
    """
    done = subprocess.run(
        [*pip, "index", "versions", "-vv", package],
        env={**environ, "PIP_RETRIES": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    for *codes, certificate, connection in _REFUSED.findall(done.stdout):
        code = "".join(codes)
        if connection or _PASSING.fullmatch(code):
            raise _index_failure(f"it answers {code}" if code else "connection error")
        if code in ("401", "403", "407"):
            raise BadSetting(
                f"the package index answers {code} for {package}: check the user and password in "
                "the Secret of program.index.secret; a rehearsal has them from your own "
                "PIP_INDEX_URL or ~/.netrc"
            )
        if certificate:
            raise BadSetting(
                "the package index has a certificate that the image does not trust: set an `image` "
                "that trusts its authority, or another program.index"
            )


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
