"""An environment as one archive on the volume, which pods unpack to their own disk.

An archive counts only with a record that names it with its size and SHA-256. Records are numbered,
created exclusively and never changed; the first whose archive is as it says is the environment. So
two builders side by side, or a kill at any moment, leave a whole environment or none.
"""

import gzip
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
import sysconfig
import tarfile
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from paddle_node import contract
from paddle_node.contract import AGENT_PACKAGES, ExitCode, Variable
from paddle_node.environment import Reader
from paddle_node.failure import Failure, SettingError
from paddle_node.retry import disk_full, retry
from paddle_node.volume import durable

PLATFORM = f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"
"""What compiled packages depend on."""
ABANDONED = 86_400.0
"""Seconds after which an archive without a record has no builder any more."""
POLL = 1.0
"""Seconds between two looks for an environment; its Job takes minutes."""
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
        whole = type(record.size) is int and all(isinstance(text, str) for text in texts)
        return record if whole and _NAME.fullmatch(record.archive) else None


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


def records(folder: Path) -> Iterator[tuple[Path, Record | None]]:
    """Yields the records in order, then where the next one belongs. Raises OSError."""
    durable.look(folder)
    for number in itertools.count(1):
        file = folder / f"record-{number}.json"
        try:
            text = file.read_text(errors="replace")
        except FileNotFoundError:
            yield file, None
            return
        record = Record.read(text)
        if record is not None and _size(folder / record.archive) == record.size:
            yield file, record


def _size(file: Path) -> int | None:
    try:
        return durable.stat(file).st_size
    except FileNotFoundError:
        return None


def find(folder: Path) -> Record | None:
    """Returns the environment that is there, all its bytes read. Raises OSError."""
    for _, record in records(folder):
        if record is None:
            return None
        with (folder / record.archive).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == record.sha256:
                return record
    return None


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
        while (there := find(folder)) is None:
            *_, (next_record, _) = records(folder)
            durable.create(next_record, json.dumps(asdict(record)) + "\n")
    except BaseException:
        place.unlink(missing_ok=True)
        raise
    if there != record:
        place.unlink(missing_ok=True)
    return there


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    try:
        tarfile.data_filter(member, "/nowhere")
    except tarfile.FilterError:
        raise SettingError(
            f"program.requirements bring {member.name}, a link that leads out of the environment: "
            "leave that package out"
        ) from None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    # Compiled files hold the whole seconds of their source.
    member.mtime = int(member.mtime)
    return member


def _remove_abandoned(folder: Path) -> None:
    """Removes what killed builders left."""
    named = {record.archive for _, record in records(folder) if record is not None}
    for file in durable.glob(folder, "archive-*"):
        if file.name not in named and time.time() - file.stat().st_mtime > ABANDONED:
            file.unlink(missing_ok=True)


def make(environment: Path, lies_at: Path | None = None) -> None:
    """Makes an empty environment that also sees this Python's packages, its programs and the
    agent's packages. `lies_at`: where it is moved to afterwards.
    """
    shutil.rmtree(environment, ignore_errors=True)
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
    for _, record in records(folder):
        if record is None:
            break
        if record.platform != PLATFORM:
            raise SettingError(
                f"the environment in {folder} is for {record.platform}, and this Python is "
                f"{PLATFORM}: set another `image`, or program.environment to image"
            )
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
    with archive.open("rb") as file:
        packed = _Hashed(file)
        stream: Any = packed
        try:
            with tarfile.open(fileobj=stream, mode="r|gz") as tar:
                tar.extractall(part, filter="data")
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
    deadline, reported = time.monotonic() + seconds, False
    with _one_by_one:
        while not place.is_dir() and not retry(partial(unpack, target, place), report):
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
