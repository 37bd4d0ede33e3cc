"""A settings file that adds to another one: `extends: org.yaml`.

Promises: groups are merged setting by setting; the nearer file replaces all other values. If a file
locks a setting (`locked: [retain, network.cidr, nodes.*.ssh]`), no file that extends it can change
that setting. Imports no aws_cdk.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from paddle_settings import file as settings_file
from paddle_settings.errors import SettingError
from paddle_settings.model import Settings, format_value, has_setting

MOST_FILES = 8
"""The longest chain of files."""


@dataclass(frozen=True)
class Layers:
    """The files of a chain, the nearest first, as one mapping."""

    merged: dict[str, Any]
    files: list[tuple[Path, dict[str, Any]]]
    locks: list[tuple[str, str]]
    """Each locked setting, and the name of the file that locks it."""

    @property
    def handed_down(self) -> frozenset[str]:
        """The settings, such as nodes.workers.min, that only files have which the nearest extends.
        Where one has no effect, the nearest file's author did not ask for it.
        """
        own = set(_paths(self.files[0][1])) if self.files else set()
        return frozenset(path for _, settings in self.files[1:] for path in _paths(settings)) - own

    def check_change(self, by: str, settings: Mapping[str, Any]) -> None:
        """Raises SettingError if `settings`, which `by` made of the merged ones, changes what is
        locked.
        """
        for lock, file in self.locks:
            _check_lock(by, lock, file, self.merged, settings)

    def check_locks(self, spec: type[Settings], kind: str) -> None:
        """Raises SettingError if a file locks what files of this kind do not have."""
        for lock, file in self.locks:
            if not has_setting(spec, lock):
                raise SettingError(f"{file}: locked has {lock}: {kind} has no such setting")

    @contextmanager
    def naming_files(self) -> Iterator[None]:
        """Puts before each sentence of a SettingError the name of the file that it is about."""
        try:
            yield
        except SettingError as error:
            lines = [f"{self._origin(line)}: {line}" for line in str(error).splitlines()]
            raise SettingError("\n".join(lines)) from None

    def _origin(self, sentence: str) -> str:
        """Returns the name of the file that a fault's sentence is about: the nearest that has the
        setting, else the first.
        """
        path = sentence.partition(" ")[0]
        names = [file.name for file, settings in self.files if path in _paths(settings)]
        return (names or [self.files[0][0].name])[0]


def load(path: Path, settings: Mapping[str, Any] | None = None) -> Layers:
    """Returns the file at `path` with all that it extends. `settings`: what stands for its
    content, without a file. Raises SettingError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "org.yaml").write_text("{retain: true, locked: [retain]}")
    ...     _ = Path(folder, "team.yaml").write_text("{extends: org.yaml, retain: false}")
    ...     load(Path(folder, "team.yaml"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paddle_settings.errors.SettingError: team.yaml: retain is false: org.yaml has locked ...
    """
    files = list(_chain(path, settings))
    merged: dict[str, Any] = {}
    locks: list[tuple[str, str]] = []
    for file, settings in reversed(files):
        above = _merge(merged, settings)
        for lock, by in locks:
            _check_lock(file.name, lock, by, merged, above)
        merged = above
        locks += [(lock, file.name) for lock in _locked(file, settings)]
    for setting in ("extends", "locked"):
        merged.pop(setting, None)
    return Layers(merged, files, locks)


def _chain(path: Path, settings: Mapping[str, Any] | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    seen: list[Path] = []
    while True:
        seen.append(path.resolve())
        content = settings_file.mapping(path) if settings is None else dict(settings)
        settings = None
        yield path, content
        base = content.get("extends")
        if base is None:
            return
        if not isinstance(base, str) or not base:
            raise SettingError(
                f"{path.name}: extends is {format_value(base)}: allowed is the path of a settings "
                "file"
            )
        path, nearer = path.parent / base, path
        if path.resolve() in seen or len(seen) == MOST_FILES:
            raise SettingError(
                f"{nearer.name}: extends is {format_value(base)}: allowed is a chain of up to "
                f"{MOST_FILES} files that ends"
            )


def _paths(settings: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in settings.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from _paths(value, f"{above}{name}.")


def _locked(file: Path, settings: Mapping[str, Any]) -> list[str]:
    locked = settings.get("locked", [])
    if not isinstance(locked, list) or not all(isinstance(entry, str) for entry in locked):
        raise SettingError(
            f"{file.name}: locked is {format_value(locked)}: allowed is a list of settings such as "
            "retain or network.cidr"
        )
    return locked


def _check_lock(
    file: str, lock: str, by: str, below: Mapping[str, Any], above: Mapping[str, Any]
) -> None:
    """Raises SettingError if `file` changes settings that the files `below` it have locked."""
    before, after = (dict(_matches(settings, lock.split("."))) for settings in (below, above))
    for setting in {**before, **after}:
        kept, value = before.get(setting), after.get(setting)
        if kept == value:
            continue
        while isinstance(kept, dict) and isinstance(value, dict):
            name = next(name for name in {**kept, **value} if kept.get(name) != value.get(name))
            setting, kept, value = f"{setting}.{name}", kept.get(name), value.get(name)
        at = f" at {format_value(kept)}" if kept is not None else ""
        raise SettingError(
            f"{file}: {setting} is {format_value(value)}: {by} has locked {lock}{at}; leave it out"
        )


def _matches(settings: Any, parts: list[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (path, value) of the settings to which a lock such as `nodes.*.ssh` applies."""
    if not parts:
        yield path, settings
    elif isinstance(settings, Mapping):
        for name, value in settings.items():
            if fnmatchcase(name, parts[0]):
                yield from _matches(value, parts[1:], f"{path}.{name}" if path else name)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **below,
        **{
            name: _merge(below[name], value)
            if isinstance(value, dict) and isinstance(below.get(name), dict)
            else value
            for name, value in above.items()
        },
    }
