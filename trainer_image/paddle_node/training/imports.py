"""Follows the imports of a program's script through the program's own files, without running them.

An import in a function, in an `if` or in a `try` is optional: the program may do without it.
"""

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """A module that a file of the program imports."""

    module: str
    """Its full name, such as ppocr.data."""
    file: Path
    """The file that imports it."""
    line: int
    found: bool
    """Whether Python finds it, or finds the installed package that it belongs to."""
    own: bool
    """Whether its package is the program's own, also if the module is missing there."""
    optional: bool
    """Whether the program may do without it, or without the file that imports it."""


def follow(script: Path, folder: Path) -> Iterator[Import]:
    """Yields what `script` and the files of `folder` that it imports import, each module of a file
    once, what is optional last of all files. `sys.path` has to be that of the script. Raises
    SyntaxError for a file that is no Python, unless the program may do without it.
    """
    seen: set[Path] = set()
    waiting, later = [(script, "")], list[tuple[Path, str]]()
    while waiting or later:
        needed = bool(waiting)
        file, package = (waiting or later).pop(0)
        if file in seen or file.suffix != ".py":
            continue
        seen.add(file)
        try:
            statements = list(_statements(file, package))
        except (SyntaxError, ValueError):
            if needed:
                raise
            continue
        for module, names, line, nested in statements:
            optional = nested or not needed
            places = _find_top(module.partition(".")[0])
            if places is None or not any(place.is_relative_to(folder) for place in places):
                yield Import(module, file, line, places is not None, own=False, optional=optional)
                continue
            found, files = _find(module, names, places)
            yield Import(module, file, line, found, own=True, optional=optional)
            (later if optional else waiting).extend(files)


def fitted(text: str) -> int:
    """Returns the line of a script's call of `fit` of a `paddle.Model`; 0: there is none."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    if not any(ast.unparse(call.func) == "paddle.Model" for call in calls):
        return 0
    fits = (call for call in calls if isinstance(call.func, ast.Attribute))
    return next((call.lineno for call in fits if ast.unparse(call.func).endswith(".fit")), 0)


def _statements(file: Path, package: str) -> Iterator[tuple[str, list[str], int, bool]]:
    """Yields each module that a file imports, the names that it takes from it, the line, and
    whether the statement may be one that does not run.
    """
    for outer in ast.parse(file.read_bytes(), str(file)).body:
        for statement in ast.walk(outer):
            nested = statement is not outer
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    yield alias.name, [], statement.lineno, nested
            elif isinstance(statement, ast.ImportFrom):
                above = package.split(".")
                if statement.level > len(above) or (statement.level and not package):
                    continue
                start = above[: len(above) - statement.level + 1] if statement.level else []
                module = ".".join([*start, *filter(None, [statement.module])])
                yield module, [alias.name for alias in statement.names], statement.lineno, nested


def _find_top(name: str) -> list[Path] | None:
    """Returns the files or folders of a top-level module; None: there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # A module that stands in for another.
        return []
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or ()), *filter(None, [spec.origin])]
    return [Path(place) for place in places]


def _find(module: str, names: list[str], places: list[Path]) -> tuple[bool, list[tuple[Path, str]]]:
    """Returns whether an own module is there, and the files that its import runs, each with the
    package that its relative imports begin from.
    """
    top, *parts = module.split(".")
    folders = [place for place in places if place.is_dir()]
    if not folders:
        return not parts, [(place, "") for place in places]
    package, files = top, _initials(folders, top)
    for part in parts:
        below, file = _look(folders, part)
        package = f"{package}.{part}"
        if file is not None:
            return True, [*files, (file, package.rpartition(".")[0])]
        if not below:  # A package may say itself where its modules are.
            return any("__path__" in file.read_text(errors="replace") for file, _ in files), files
        folders = below
        files += _initials(folders, package)
    for name in names:
        below, file = _look(folders, name)
        files += [(file, package)] if file is not None else _initials(below, f"{package}.{name}")
    return True, files


def _look(folders: list[Path], name: str) -> tuple[list[Path], Path | None]:
    """Returns the folders of a package or, if it is one, the file of a module."""
    below = [folder / name for folder in folders if (folder / name).is_dir()]
    if not _initials(below, name):
        files = [folder / f"{name}.py" for folder in folders]
        files += [file for folder in folders for file in folder.glob(f"{name}.*so")]
        if file := next((file for file in files if file.is_file()), None):
            return [], file
    return below, None


def _initials(folders: list[Path], package: str) -> list[tuple[Path, str]]:
    files = (folder / "__init__.py" for folder in folders)
    return [(file, package) for file in files if file.is_file()]
