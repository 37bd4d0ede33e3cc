"""An environment as one archive on the volume, which pods unpack to their own disk.

An archive counts only with a record that names it with its size and SHA-256. Records are numbered,
created exclusively and never changed; the first whose archive is as it says is the environment. So
two builders side by side, or a kill at any moment, leave a whole environment or none.
"""

import contextlib
import errno
import gzip
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import sys
import sysconfig
import tarfile
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from paddle_node import contract
from paddle_node.contract import AGENT_PACKAGES, ExitCode, Variable
from paddle_node.environment import Reader
from paddle_node.failure import Failure, SettingError
from paddle_node.requirements import refusals
from paddle_node.retry import disk_full, retry
from paddle_node.volume import durable

PLATFORM = f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"
"""What compiled packages depend on."""
ABANDONED = 86_400.0
"""Seconds after which an archive without a record has no builder any more."""
REMOVED = 60.0
"""Seconds within which a job's next environment Job removes what an earlier one said."""
POLL = 1.0
"""Seconds between two looks for an environment; its Job takes minutes."""
TRIES = 8
"""Numbers that a builder tries for its record: other builders may take them first."""
_one_by_one = threading.Lock()
_NAME = re.compile(r"archive-[0-9a-f]{16}\.tar\.gz")
_LEVEL = 1
"""Of gzip: a third of the bytes for a tenth of the time that the best would take."""


@dataclass(frozen=True)
class Record:
    """What a builder says about its archive."""

    archive: str
    size: int
    sha256: str
    platform: str
    built_at: str
    """Where the environment lay: its scripts name its Python there."""
    packages: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Record | None":
        """Returns None for anything that is no whole record."""
        try:
            fields = json.loads(text)
            record = cls(**{**fields, "packages": tuple(map(str, fields["packages"]))})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        texts = (record.archive, record.sha256, record.platform, record.built_at)
        if type(record.size) is not int or not all(isinstance(text, str) for text in texts):
            return None
        # A surrogate without its pair fits no line and no path.
        printable = all(text.isprintable() for text in (*texts, *record.packages))
        return record if printable and _NAME.fullmatch(record.archive) else None


class _Hashed:
    """A file that hashes and counts what passes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash, self.size = file, hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        return self._pass(self._file.read(size))

    def write(self, content: bytes) -> int:
        self._file.write(content)
        return len(self._pass(content))

    def _pass(self, content: bytes) -> bytes:
        self._hash.update(content)
        self.size += len(content)
        return content

    def digest(self) -> str:
        return self._hash.hexdigest()


def _records(folder: Path) -> Iterator[tuple[Path, Record | None]]:
    """Yields the records in order, None for what is none or has no archive of its size; last, where
    the next one belongs. Raises OSError.
    """
    durable.look(folder)
    for number in itertools.count(1):
        file = folder / f"record-{number}.json"
        try:
            content = _read(file)
        except FileNotFoundError:
            yield file, None
            return
        record = Record.read(content.decode(errors="replace"))
        if record is not None and _size(folder / record.archive) != record.size:
            record = None
        yield file, record


def _read(file: Path) -> bytes:
    stream = durable.open_file(file)
    if stream is None:
        return b""
    with stream:
        return stream.read()


def _size(file: Path) -> int | None:
    stream = _open_archive(file)
    if stream is None:
        return None
    with stream:
        return os.fstat(stream.fileno()).st_size


def _open_archive(file: Path) -> BufferedReader | None:
    try:
        return durable.open_file(file)
    except FileNotFoundError:
        return None


def find(folder: Path) -> Record | None:
    """Returns this platform's environment that is there, all its bytes read. Raises OSError."""
    record = _find(folder)
    return record if isinstance(record, Record) else None


def _find(folder: Path) -> Record | Path:
    """Returns the record that counts or, without one, where the next one belongs."""
    next_file = folder
    for file, record in _records(folder):
        next_file = file
        if record is None or record.platform != PLATFORM:
            continue
        if (stream := _open_archive(folder / record.archive)) is not None:
            with stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() == record.sha256:
                    return record
    return next_file


def add(folder: Path, environment: Path, files: Sequence[str], packages: Sequence[str]) -> Record:
    """Packs these files of the environment, and returns the record that counts from now on: this
    one, or that of a builder who was faster. Raises OSError.
    """
    _remove_abandoned(folder)
    name = f"archive-{os.urandom(8).hex()}.tar.gz"
    place = folder / name
    try:
        with place.open("xb") as file:
            packed = _Hashed(file)
            stream: Any = packed
            with (
                gzip.GzipFile("", "wb", _LEVEL, stream, mtime=0) as packer,
                tarfile.open(fileobj=packer, mode="w") as tar,
            ):
                for path in sorted(files):
                    tar.add(environment / path, path, recursive=False, filter=_plain)
            file.flush()
            os.fsync(file.fileno())
        record = Record(
            name, packed.size, packed.digest(), PLATFORM, str(environment), tuple(packages)
        )
        there = _publish(folder, record)
    except BaseException:
        place.unlink(missing_ok=True)
        raise
    if there != record:
        place.unlink(missing_ok=True)
    return there


def _publish(folder: Path, record: Record) -> Record:
    """Returns the record that counts: this one, unless another builder was faster."""
    created = False
    for _ in range(TRIES):
        there = _find(folder)
        if isinstance(there, Record):
            return there
        if created:
            break
        created = durable.create(there, json.dumps(asdict(record)) + "\n")
    place = str(folder / record.archive)
    raise OSError(errno.EIO, "the archive is not as it was written", place)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    if fault := _fault(member, Path("/nowhere")):
        raise SettingError(
            f"program.requirements bring {member.name}, {fault}: leave that package out"
        )
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    # Compiled files hold the whole seconds of their source.
    member.mtime = int(member.mtime)
    return member


def _fault(member: tarfile.TarInfo, place: Path) -> str:
    """Returns why a member may not be unpacked below `place`, as it is there now; empty if it may.
    tarfile's own filter for that is missing in Debian 12's Python.
    """
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "a pipe or device"
    root, paths = place.resolve(), [Path(member.name)]
    if member.linkname:
        paths.append((paths[0].parent if member.issym() else Path()) / member.linkname)
    for path in paths:
        if not (root / path).resolve().is_relative_to(root):
            return "a link that leads out of the environment"
    return ""


def _allowed(tar: tarfile.TarFile, place: Path) -> Iterator[tarfile.TarInfo]:
    """Yields each member before it is unpacked. Raises TarError for one that may not be."""
    for member in tar:
        if fault := _fault(member, place):
            raise tarfile.TarError(fault)
        member.mode &= 0o755
        yield member


def _remove_abandoned(folder: Path) -> None:
    """Removes what killed builders left."""
    named = {record.archive for _, record in _records(folder) if record is not None}
    for file in durable.glob(folder, "archive-*"):
        # Its builder may remove it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            status = file.lstat()
            old = time.time() - status.st_mtime > ABANDONED
            if old and file.name not in named and not stat.S_ISDIR(status.st_mode):
                file.unlink()


def make(environment: Path, lies_at: Path | None = None) -> None:
    """Makes an empty environment that also sees this Python's packages, its programs and the
    agent's packages. `lies_at`: where it is moved to afterwards.
    """
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(environment)
    below = Path(sys.prefix)
    configuration = below / "pyvenv.cfg"
    of_base = configuration.is_file() and re.search(
        r"(?m)^include-system-site-packages *= *true", configuration.read_text()
    )
    venv.EnvBuilder(symlinks=True, system_site_packages=bool(of_base)).create(environment)
    (added,) = environment.glob("lib/python3*/site-packages")
    (added / "below.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    if (below / AGENT_PACKAGES).is_dir():
        (environment / AGENT_PACKAGES).symlink_to(below / AGENT_PACKAGES)
    python = (lies_at or environment) / "bin" / "python"
    for script in filter(Path.is_file, (below / "bin").iterdir()):
        head, _, rest = script.read_bytes().partition(b"\n")
        if head.startswith(b"#!") and b"python" in head and not script.is_symlink():
            # Paddle's launcher has to start this Python.
            copy = environment / "bin" / script.name
            copy.write_bytes(b"#!" + os.fsencode(python) + b"\n" + rest)
            copy.chmod(0o755)


def unpack(folder: Path, place: Path) -> bool:
    """Unpacks the environment to `place`, which appears once every byte is as recorded. Returns
    whether there is one. Raises SettingError, OSError.
    """
    part = place.with_name(f".{place.name}.part")
    for _, record in _records(folder):
        if record is None or record.platform != PLATFORM:
            continue
        try:
            make(part, place)
            if _extract(folder / record.archive, record, part):
                _move_scripts(part, record.built_at, place)
                shutil.rmtree(place, ignore_errors=True)
                part.rename(place)
                return True
        except OSError as error:
            if disk_full(error) and not str(error.filename or part).startswith(str(folder)):
                raise SettingError(
                    f"the pod's scratch has no room for the environment of "
                    f"{record.size:,} packed bytes: raise its `scratch`"
                ) from None
            raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return False


def _extract(archive: Path, record: Record, part: Path) -> bool:
    """Returns whether the archive was the recorded one."""
    file = _open_archive(archive)
    if file is None:
        return False
    with file:
        packed = _Hashed(file)
        stream: Any = packed
        try:
            with tarfile.open(fileobj=stream, mode="r|gz") as tar:
                # `_allowed` checks them, on Pythons without filters too.
                tar.extraction_filter = lambda member, path: member
                tar.extractall(part, _allowed(tar, part))
        except (tarfile.TarError, EOFError, ValueError):
            return False
        while packed.read(1 << 20):
            pass
    return packed.digest() == record.sha256


def _move_scripts(part: Path, built_at: str, place: Path) -> None:
    old, new = os.fsencode(f"{built_at}/bin/"), os.fsencode(f"{place}/bin/")
    for script in filter(Path.is_file, (part / "bin").iterdir()) if old != new else ():
        if not script.is_symlink() and (text := script.read_bytes()).startswith(b"#!"):
            script.write_bytes(text.replace(old, new))


def folder(environ: Mapping[str, str]) -> Path:
    """Returns the environment's folder on the volume, as the pod's variables name it. Raises
    SettingError.
    """
    read = Reader(environ)
    volume = contract.path(read.absolute(Variable.JOB_PATH, contract.VOLUME_MOUNT), environ)
    return volume / contract.ENVIRONMENTS / read.digest(Variable.ENVIRONMENT)


def bring(environ: Mapping[str, str], report: Callable[[str], None], seconds: float) -> Path:
    """Unpacks the pod's environment to its scratch as soon as it is on the volume, unless an
    earlier try did, and returns its folder. Raises Failure, OSError.
    """
    target, place = folder(environ), contract.path(contract.ENVIRONMENT, environ)
    began, reported = time.monotonic(), False
    deadline, earlier = began + seconds, set[Path]()
    with _one_by_one:
        while not place.is_dir() and not retry(partial(unpack, target, place), report):
            for file, sentence in retry(lambda: list(refusals.read(target, environ)), report):
                if not reported:
                    # Of this Job's run, or of an earlier one.
                    earlier.add(file)
                if file not in earlier or time.monotonic() > began + REMOVED:
                    raise Failure(
                        ExitCode.BAD_DATA,
                        f"the environment of program.requirements cannot be built: {sentence}",
                    )
            if time.monotonic() > deadline:
                raise Failure(
                    ExitCode.BAD_DATA,
                    f"the environment of program.requirements did not come within {seconds:.0f} s: "
                    "`paddle-aws logs JOB --of environment` says how far its Job is",
                )
            if not reported:
                report(f"waiting for {target}, which the environment Job builds")
                reported = True
            time.sleep(POLL)
    return place


def variables(environ: Mapping[str, str], place: Path) -> dict[str, str]:
    """Returns the variables of processes that run in the environment."""
    path = f"{place}/bin:{environ.get('PATH', os.defpath)}"
    return {**environ, "PATH": path, "VIRTUAL_ENV": str(place)}


def enter(environ: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Starts this program anew in the pod's environment, if it has one and is not there yet. Raises
    Failure, OSError.
    """
    if not environ.get(Variable.ENVIRONMENT):
        return
    place = bring(environ, report, Reader(environ).seconds(Variable.PEER_DEADLINE))
    if not place.samefile(sys.prefix):
        python = str(place / "bin" / "python")
        os.execve(python, [python, *sys.orig_argv[1:]], variables(environ, place))


if __name__ == "__main__":
    sys.exit(not unpack(Path(sys.argv[1]), Path(sys.argv[2])))
