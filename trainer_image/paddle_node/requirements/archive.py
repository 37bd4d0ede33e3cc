"""An environment as one archive on the volume, which pods unpack to their own disk.

An archive counts only with a record that names it with its SHA-256. Records are numbered,
created exclusively and never changed; the first whose archive is as it says is the environment. So
two builders side by side, or a kill at any moment, leave a whole environment or none.
"""

import contextlib
import errno
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import site
import sys
import sysconfig
import tarfile
import threading
import time
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

from paddle_node import contract, typed
from paddle_node.contract import AGENT_PACKAGES, ExitCode, Variable
from paddle_node.environment import Reader
from paddle_node.failure import BadSetting, Failure
from paddle_node.requirements import refusals
from paddle_node.retry import disk_full, may_pass, retry
from paddle_node.typed import Frozen
from paddle_node.volume import durable

PLATFORM = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
"""What compiled packages depend on."""
ABANDONED_AFTER = 86_400.0
"""Seconds after which an archive without a record has no builder any more."""
RECORD_BYTES = 1_000_000
"""Bytes of a record that are read."""
MOST_FOLDERS = 100
"""Folders in each other: Python removes no deeper ones."""
POLL = 1.0
"""Seconds between two looks for an environment; its Job takes minutes."""
_one_by_one = threading.Lock()
_NAME = re.compile(rf"archive-{re.escape(PLATFORM)}-[0-9a-f]{{16}}\.tar\.gz")
_LEVEL = 1
"""Of gzip: a third of the bytes for a tenth of the time that the best would take."""
_PYTHON = re.compile(rb"\A(#!(?:/bin/sh\n'''exec' )?\"?)[^\"\n]*?/python[\d.]*")
"""How a script begins that a Python runs; pip goes through the shell for a long path."""


class ArchiveRecord(Frozen):
    """A builder's record of its archive, whose name has the platform."""

    archive: str
    sha256: str
    packages: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "ArchiveRecord | None":
        """Returns None for anything that is no whole record of this platform."""
        with contextlib.suppress(ValueError, RecursionError):
            record: ArchiveRecord = typed.read(cls, json.loads(text), "the record")
            texts = (record.archive, record.sha256, *record.packages)
            # A surrogate without its pair fits no line and no path.
            if all(map(str.isprintable, texts)) and _NAME.fullmatch(record.archive):
                return record
        return None


class _HashedFile:
    """A file that hashes the bytes that pass through it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.hash = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self.hash.update(content)
        return content

    def write(self, content: bytes) -> int:
        self.hash.update(content)
        return self._file.write(content)


def _open(file: Path) -> io.BufferedReader | io.BytesIO:
    """Opens a file; anything else reads as empty. Raises OSError."""
    return durable.open_file(file) or io.BytesIO()


def _records(folder: Path) -> Iterator[tuple[Path, ArchiveRecord | None]]:
    """Yields this platform's records in order, None for any other; last, where the next one
    belongs. Raises OSError.
    """
    durable.refresh(folder)
    for number in itertools.count(1):
        file = folder / f"record-{number}.json"
        try:
            with _open(file) as stream:
                yield file, ArchiveRecord.read(stream.read(RECORD_BYTES).decode(errors="replace"))
        except FileNotFoundError:
            yield file, None
            return


def find(folder: Path) -> tuple[Path, ArchiveRecord | None]:
    """Returns the record of the environment that is there, all its bytes read; without one, where
    the next one belongs. Raises OSError.
    """
    for next_file, record in _records(folder):
        with contextlib.suppress(FileNotFoundError):
            if record is not None:
                with _open(folder / record.archive) as packed:
                    if hashlib.file_digest(packed, "sha256").hexdigest() == record.sha256:
                        return next_file, record
    return next_file, None


def add(
    folder: Path, environment: Path, files: Iterable[str], packages: Sequence[str]
) -> ArchiveRecord:
    """Packs these files of the environment, and returns the record that counts from now on: this
    one, or that of a builder who was faster. Raises BadSetting, OSError.
    """
    _remove_abandoned(folder)
    place = folder / f"archive-{PLATFORM}-{os.urandom(8).hex()}.tar.gz"
    there, created = None, False
    try:
        with place.open("xb") as file:
            packed: Any = _HashedFile(file)
            with (
                gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as packer,
                tarfile.open(fileobj=packer, mode="w", dereference=True) as tar,
            ):
                for path in sorted(files):
                    tar.add(
                        _check_packable(environment, path), path, recursive=False, filter=_normalize
                    )
            file.flush()
            os.fsync(file.fileno())
        record = ArchiveRecord(place.name, packed.hash.hexdigest(), tuple(packages))
        while True:
            next_file, there = find(folder)
            if there is not None:
                return there
            if created:
                raise OSError(errno.EIO, "the archive is not as it was written", str(place))
            created = durable.create(next_file, json.dumps(asdict(record)) + "\n")
    finally:
        if there is None or there.archive != place.name:
            place.unlink(missing_ok=True)


def _check_packable(environment: Path, path: str) -> Path:
    file = environment / path
    if file.is_symlink() or not file.is_file() or not _lies_inside(environment, path):
        raise BadSetting(
            f"program.requirements bring {path}, a link, a pipe, or a file elsewhere: leave that "
            "package out"
        )
    return file


def _lies_inside(place: Path, path: str) -> bool:
    return path.count("/") < MOST_FOLDERS and (place / path).resolve().is_relative_to(
        place.resolve()
    )


def _normalize(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    # Compiled files hold the whole seconds of their source.
    member.mtime = int(member.mtime)
    return member


def _check_members(tar: tarfile.TarFile, place: Path) -> Iterator[tarfile.TarInfo]:
    """Yields each member before it is unpacked. Raises TarError for one that may not be: tarfile's
    own filters are missing in Debian 12's Python.
    """
    for member in tar:
        if not member.isreg() or not _lies_inside(place, member.name):
            raise tarfile.TarError(member.name)
        member.mode &= 0o755
        yield member


def _remove_abandoned(folder: Path) -> None:
    """Removes what killed builders left."""
    named = {record.archive for _, record in _records(folder) if record is not None}
    for file in durable.glob(folder, f"archive-{PLATFORM}-*"):
        # Its builder may remove it meanwhile.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            if file.name not in named and time.time() - file.lstat().st_mtime > ABANDONED_AFTER:
                file.unlink()


def make(environment: Path) -> None:
    """Makes an empty environment that also sees this Python's packages, and the agent's."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(environment)
    venv.EnvBuilder(symlinks=True).create(environment)
    (added,) = environment.glob("lib/python3*/site-packages")
    (added / "below.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
    agent = Path(sys.prefix) / AGENT_PACKAGES
    if agent.is_dir():
        (environment / AGENT_PACKAGES).symlink_to(agent)


def unpack(folder: Path, place: Path) -> bool:
    """Unpacks the environment to `place`, which appears once every byte is as recorded. Returns
    whether there is one. Raises BadSetting, OSError.
    """
    part = place.with_name(f".{place.name}.part")
    for _, record in _records(folder):
        try:
            if record is None or not _extract(folder / record.archive, record, part):
                continue
            _lay_scripts(part, place)
            shutil.rmtree(place, ignore_errors=True)
            part.rename(place)
            return True
        except OSError as error:
            if disk_full(error) and not str(error.filename or part).startswith(str(folder)):
                raise BadSetting(
                    "the pod's scratch has no room for the environment of program.requirements: "
                    "raise its `scratch`"
                ) from None
            raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return False


def _extract(archive: Path, record: ArchiveRecord, part: Path) -> bool:
    """Returns whether the archive was the recorded one. Raises BadSetting if it was, and cannot
    be unpacked.
    """
    try:
        file = _open(archive)
    except FileNotFoundError:
        return False
    with file:
        make(part)
        packed: Any = _HashedFile(file)
        fault: Exception | None = None
        try:
            with tarfile.open(fileobj=packed, mode="r|gz") as tar:
                # `_check_members` checks them, on Pythons without filters too.
                tar.extraction_filter = lambda member, path: member
                tar.extractall(part, _check_members(tar, part))
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
            fault = error
        except OSError as error:
            if may_pass(error) or disk_full(error):
                raise
            fault = error
        while packed.read(1 << 20):
            pass
    whole = bool(packed.hash.hexdigest() == record.sha256)
    if whole and fault is not None:
        raise BadSetting(
            f"{archive} is as its record says, but cannot be unpacked ({str(fault)[:100]}): remove "
            "its folder, and submit the job again"
        )
    return whole


def _lay_scripts(part: Path, place: Path) -> None:
    """Lays the image's scripts beside the environment's, such as Paddle's launcher: all start its
    Python.
    """
    python = os.fsencode(place / "bin" / "python")
    for script in (*Path(sys.prefix, "bin").iterdir(), *(part / "bin").iterdir()):
        copy = part / "bin" / script.name
        if script.is_file() and not script.is_symlink() and (script == copy or not copy.exists()):
            text, count = _PYTHON.subn(lambda match: match[1] + python, script.read_bytes(), 1)
            if count:
                copy.write_bytes(text)
                copy.chmod(0o755)


def folder(environ: Mapping[str, str]) -> Path:
    """Returns the environment's folder on the volume, as the pod's variables name it. Raises
    BadSetting.
    """
    read = Reader(environ)
    volume = read.place(Variable.JOB_PATH, contract.VOLUME_MOUNT)
    return volume / contract.ENVIRONMENTS / read.digest(Variable.ENVIRONMENT)


def bring(environ: Mapping[str, str], report: Callable[[str], None], seconds: float) -> Path:
    """Unpacks the pod's environment to its scratch as soon as it is on the volume, unless an
    earlier try did, and returns its folder. Raises Failure, OSError.
    """
    target, place = folder(environ), contract.path(contract.ENVIRONMENT, environ)
    began, earlier = time.monotonic(), None
    with _one_by_one:
        while not place.is_dir() and not retry(partial(unpack, target, place), report):
            waited = time.monotonic() - began
            refused = retry(partial(refusals.find, target, environ), report)
            if earlier is None:
                earlier = set(refused)
                report(f"waiting for {target}, which the environment Job builds")
            for file, sentence in refused.items():
                patience = retry(partial(refusals.believed_seconds, file, environ), report)
                if file not in earlier or waited >= patience:
                    with contextlib.suppress(OSError):  # The Job's next run may remove it.
                        refusals.mark_met(file, environ)
                    raise Failure(
                        ExitCode.BAD_DATA,
                        f"the environment of program.requirements cannot be built: {sentence}",
                    )
            if waited > seconds:
                raise Failure(
                    ExitCode.BAD_DATA,
                    f"the environment of program.requirements did not come within {seconds:.0f} s: "
                    "`paddle-aws logs JOB --of environment` says how far its Job is"
                    + "".join(f"; an earlier one said: {earlier}" for earlier in refused.values()),
                )
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
