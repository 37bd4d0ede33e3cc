"""Follows the imports of a program's script through the program's own files, without running them.

An import in a function, in an `if` or in a `try` is optional: the program may do without it.
"""

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
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
            top = _find_top(module.partition(".")[0])
            places = [] if top is None else [*_folders(top), *filter(None, [top.origin])]
            if top is None or not any(Path(place).is_relative_to(folder) for place in places):
                yield Import(module, file, line, top is not None, own=False, optional=optional)
                continue
            found, files = _find(top, module, names)
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


def _find_top(name: str) -> ModuleSpec | None:
    """Returns the specification of a top-level module; None: there is none."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # A module that stands in for another.
        return ModuleSpec(name, None)


def _folders(spec: ModuleSpec) -> list[str]:
    """Returns the folders of a package's modules; none of a module."""
    return list(spec.submodule_search_locations or ())


def _file(spec: ModuleSpec, name: str) -> list[tuple[Path, str]]:
    """Returns the file that the import of module `name` runs, if it has one, with the package that
    its relative imports begin from.
    """
    package = name if _folders(spec) else name.rpartition(".")[0]
    return [(Path(spec.origin), package)] if spec.has_location and spec.origin else []


def _find(top: ModuleSpec, module: str, names: list[str]) -> tuple[bool, list[tuple[Path, str]]]:
    """Returns whether an own module is there, `top` or below it, and the files that its import
    runs, as `_file` does.
    """
    spec, package, files = top, top.name, _file(top, top.name)
    for part in module.split(".")[1:]:
        # By its last name alone: of a folder in a package Python asks the imported package.
        below = PathFinder.find_spec(part, _folders(spec))
        if below is None:  # A package, or a module, may say itself where its modules are.
            says = any("__path__" in file.read_text(errors="replace") for file, _ in files)
            return says or not (_folders(spec) or spec is top), files
        spec, package = below, f"{package}.{part}"
        files += _file(spec, package)
    for name in names if _folders(spec) else ():
        if below := PathFinder.find_spec(name, _folders(spec)):
            files += _file(below, f"{package}.{name}")
    return True, files
