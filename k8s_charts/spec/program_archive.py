"""A user's program on its way to the pods: as an archive named by its digest or, if small, in a
ConfigMap; and its requirements.

An archive of the same files has the same bytes on every machine (sorted, without times and owners),
leaves out what git ignores and holds no secret that is not named, and has no link that leads out of
the folder. Only `fetch` uses the network, and only for a commit that the cache lacks.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import Any, Self

from paddle_node import contract

from k8s_charts.spec import program_files
from paddle_settings.addresses import hide_secrets
from paddle_settings.errors import SettingError
from paddle_settings.file import cache_path

INLINE_LIMIT = 250_000
"""Bytes as JSON. `kubectl apply` keeps a copy of the object in an annotation, which holds 262,144;
a ConfigMap holds 1 MiB.
"""
REQUIREMENTS_LIMIT = 1_000_000
"""Bytes of the requirements, in a ConfigMap of 1 MiB."""
LOCKS = {
    "2.6": "trainer_image/requirements.lock",
    "3.3": "trainer_image/requirements-collective.lock",
}
"""The lock file of each Paddle version, relative to the project."""


@dataclass(frozen=True)
class ProgramArchive:
    """A program's files, and the digest of their archive."""

    root: Path
    names: tuple[str, ...]
    """Files and links below `root`, sorted."""
    size: int
    """Bytes of the files."""
    digest: str
    """SHA-256 of the archive."""
    setting: str = field(compare=False)
    """The setting that named the folder, for sentences."""
    read: Mapping[str, tuple[int, int]] = field(compare=False)
    """Each file's bytes, and its time, when it was read."""

    @classmethod
    def from_folder(
        cls,
        root: Path,
        setting: str,
        job_file: Path | None = None,
        include: Iterable[str] = (),
    ) -> Self:
        """Reads the folder, which `setting` names: what git does not ignore, and what `include`
        names. The job file is left out, so that a run can continue after you edit it. Raises
        SettingError, also for what looks like a secret.
        """
        if not root.is_dir():
            raise SettingError(f"{setting} is {root}: there is no such folder")
        root = root.resolve()
        try:
            ours = job_file.resolve() if job_file is not None else None
            shown = _shown_files()
            listed = (
                name
                for name in program_files.list_files(root, setting)
                if root / name != ours and _identity((root / name).stat()) not in shown
            )
            names = tuple(sorted(program_files.add_named(root, listed, include, setting)))
            read = {name: _stamp(root / name) for name in names}
            size = sum(size for size, _ in read.values())
            if not size:
                raise SettingError(
                    f"{setting} is {root}: it has no files for the pods; put the program there, or "
                    "name its folder as `program.folder`"
                )
            if size > contract.PROGRAM_LIMIT:
                raise SettingError(
                    f"{setting} is {root}: its files have {size:,} bytes, 1 to "
                    f"{contract.PROGRAM_LIMIT:,} are allowed; let .gitignore leave out what is "
                    "not the program"
                )
            with TemporaryFile() as file:
                return cls(root, names, size, _write(root, names, file, setting), setting, read)
        except OSError as error:
            raise SettingError(
                f"{setting} has {error.filename or root}, which cannot be read: {error.strerror}"
            ) from None

    @classmethod
    def from_commit(
        cls, repository: str, commit: str, folder: str, include: Iterable[str] = (), *, fetch: bool
    ) -> Self:
        """Reads the files of a commit, or of a folder in it. Raises SettingError, also if a needed
        `fetch` is not allowed.
        """
        checkout = cache_path("programs", repository, commit)
        # Untracked files count too: nobody works in the cache.
        if (
            not checkout.is_dir()
            or _git(checkout, "status", "--porcelain", "--ignored")
            or _git(checkout, "diff", commit)
        ):
            if not fetch:
                raise SettingError(
                    f"program.commit is {commit}: not on this machine yet, `paddle-aws submit "
                    "--dry-run` fetches it"
                )
            _fetch(repository, commit, checkout)
        if not (checkout / folder).is_dir():
            raise SettingError(f"program.folder is {folder}: commit {commit} has no such folder")
        return cls.from_folder(checkout / folder, "program.folder", include=include)

    def texts(self) -> dict[str, str]:
        """Returns the files by name, for a ConfigMap. Raises SettingError for what it cannot
        hold.
        """
        files: dict[str, str] = {}
        for name in self.names:
            if not re.fullmatch(r"(?!\.\.)[-._a-zA-Z0-9]{1,253}", name):
                raise SettingError(
                    f"{self.setting} has {name!r}: a ConfigMap holds files only, with letters, "
                    "digits, '-', '_' and '.' in names; use `from: folder` or image"
                )
            try:
                files[name] = (self.root / name).read_bytes().decode()
            except (OSError, UnicodeDecodeError):
                raise SettingError(
                    f"{self.setting} has {name}: only readable UTF-8 text can be in a ConfigMap"
                ) from None
        if (size := json_size(files)) > INLINE_LIMIT:
            allowed = f"{INLINE_LIMIT} are allowed; use `from: folder` or image"
            raise SettingError(
                f"{self.setting} is {self.root}: its files have {size} bytes as JSON, {allowed}"
            )
        return files

    def left_out(self) -> dict[str, str]:
        """Returns what git ignores in the folder, and by which rule."""
        found = program_files.find_left_out(self.root, self.setting)
        return {name: why for name, why in found.items() if name not in self.names}

    def describe(self) -> str:
        """Says what is sent, and what is left out and why."""
        by_rule: dict[str, list[str]] = {}
        for name, why in self.left_out().items():
            by_rule.setdefault(why, []).append(name)
        left = [
            f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if names[3:] else ''} ({why})"
            for why, names in by_rule.items()
        ]
        more = [f"what {len(left) - 5} more rules name"] if left[5:] else []
        rest = f"; left out: {', '.join([*left[:5], *more])}" if left else ""
        count = len(self.names)
        return (
            f"the program: {count:,} file{'s' * (count != 1)} of {self.root}, {self.size:,} bytes"
            f"{rest}"
        )

    def write(self, file: Path) -> None:
        """Writes the archive. Raises SettingError if a file has changed since it was read."""
        with file.open("w+b") as stream:
            try:
                if _write(self.root, self.names, stream, self.setting) == self.digest:
                    return
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise
        changed = [name for name, stamp in self.read.items() if _stamp(self.root / name) != stamp]
        raise SettingError(
            f"{self.setting} is {self.root}: {', '.join(changed[:3]) or 'the folder'} changed "
            "while it was read; run the command again, or let .gitignore leave out what is no part "
            "of the program"
        )


def _stamp(file: Path) -> tuple[int, int]:
    """Returns the bytes of a file, or of a link itself, and its time; of none, -1."""
    try:
        status = file.lstat()
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _shown_files() -> set[tuple[int, int]]:
    """Returns the files that this command's own output goes to, which changes while it runs."""
    found = set()
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            status = os.fstat(stream)
            if stat.S_ISREG(status.st_mode):
                found.add(_identity(status))
    return found


def _write(root: Path, names: tuple[str, ...], file: Any, setting: str) -> str:
    """Writes the archive of the folder that `setting` names, and returns its digest."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        if not (member.isreg() or member.issym()):
            raise SettingError(
                f"{setting} has {root / member.name}: files, folders and links are allowed"
            )
        link = (
            os.path.normpath(Path(member.name).parent / member.linkname) if member.issym() else ""
        )
        if link.startswith(("/", "../")):
            raise SettingError(
                f"{setting} has the link {root / member.name}, which leads out of the folder"
            )
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.mode & 0o100 else 0o644
        return member

    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            tar.inodes = {}  # type: ignore[attr-defined]  # A file of two names is two files.
            tar.add(root / name, name, recursive=False, filter=plain)
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(repository: str, commit: str, target: Path) -> None:
    """Fetches the whole commit into the cache. On failure the cache keeps what it held."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(dir=target.parent))
    try:
        _git(draft, "init", "--quiet")
        _git(draft, "fetch", "--quiet", "--depth", "1", "--no-tags", repository, commit)
        _git(draft, "-c", "core.autocrlf=false", "checkout", "--quiet", "--detach", commit)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = program_files.git(folder, *arguments)
    except FileNotFoundError:
        raise SettingError(
            "program.from is git, and git is not installed: install it, or use `from: folder`"
        ) from None
    if done.returncode != 0:
        message = hide_secrets(done.stderr.decode(errors="replace").strip().partition("\n")[0])
        raise SettingError(f"program.commit cannot be read: git says {message}")
    return os.fsdecode(done.stdout)


def json_size(data: Mapping[str, str]) -> int:
    """Returns the size of a ConfigMap's data as JSON, in bytes."""
    # kubectl's copy is written by Go, which escapes these three as well.
    return len(json.dumps(dict(data))) + 5 * sum(
        text.count(sign) for text in data.values() for sign in "<>&"
    )


def read_requirements(packages: str | Iterable[str], folder: Path | None) -> tuple[str, ...]:
    """Returns the packages of a list, or of a file in the program's folder; pip checks if they fit.
    Raises SettingError.
    """
    if isinstance(packages, str):
        if not packages.strip():
            raise SettingError("program.requirements is empty: leave it out, or name packages")
        if folder is None or not (folder / packages).resolve().is_relative_to(folder.resolve()):
            raise SettingError(
                f"program.requirements is {packages}: a list, such as [{packages}], or a file in a "
                "local program's folder, is allowed"
            )
        try:
            text = (folder / packages).read_text(encoding="utf-8-sig").replace("\\\n", " ")
        except (OSError, UnicodeDecodeError):
            raise SettingError(
                f"program.requirements is {packages}: the program's folder has no such text file"
            ) from None
        packages = [re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines()]
    lines = tuple(line.strip() for line in packages if line.strip())
    for line in lines:
        # pip breaks lines at more signs than "\n", and replaces ${NAME} by a variable's value.
        plain = line.replace("\t", " ").isprintable() and "${" not in line
        if not plain or not re.match(r"[A-Za-z0-9][\w.-]*\s*($|[\[(<>=!~;@])", line):
            raise SettingError(
                f"program.requirements has {line!r}: a package and its versions are allowed, "
                "such as six>=1.16"
            )
        if re.match("paddlepaddle[-_.]", line, re.IGNORECASE):
            raise SettingError(
                f"program.requirements has {line}: the image brings Paddle itself, leave it out"
            )
    if (size := len("\n".join(lines).encode()) + 1) > REQUIREMENTS_LIMIT:
        raise SettingError(
            f"program.requirements has {size:,} bytes, {REQUIREMENTS_LIMIT:,} are allowed: leave "
            "out packages that the program does not import, or the hashes"
        )
    return lines
