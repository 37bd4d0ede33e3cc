"""The Python files of a program that its command runs: those that the command or its shell script
names, and what these import of the program.

Reads sources and runs none: what a program imports by a name that it computes is not found.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST_FILES = 2000
"""Files of one program to read."""
_SCRIPT = re.compile(r"[\w./-]+\.(?:py|sh)\b")
_MODULE = re.compile(r"-m\s+([\w.]+)")
_COMMENT = re.compile(r"#[^\n]*")
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n]+)|import[ \t]+([^\n]+))",
    re.MULTILINE,
)


def read_python_files(words: Sequence[str], folder: Path) -> Iterator[tuple[Path, str]]:
    """Yields each Python file below `folder` that runs, and its text, the command's own first."""
    waiting, read = list(_find_named(" ".join(words), folder)), set[Path]()
    while waiting and len(read) < MOST_FILES:
        file = waiting.pop(0)
        if file in read or not file.is_relative_to(folder):
            continue
        read.add(file)
        text = ""
        with contextlib.suppress(OSError):
            text = file.read_text(errors="replace")
        if file.suffix == ".py":
            yield file, text
            waiting += _find_imported(text, file, folder)
        else:
            waiting += _find_named(text, folder)


def _find_named(text: str, folder: Path) -> Iterator[Path]:
    """Yields the files that a command line or a shell script names."""
    for script in _SCRIPT.findall(text):
        if (folder / script).is_file():
            yield folder / script
    for module in _MODULE.findall(text):
        yield from _module(folder, f"{module}.__main__")


def _find_imported(text: str, file: Path, folder: Path) -> Iterator[Path]:
    for dots, module, names, modules in _IMPORT.findall(_COMMENT.sub("", text)):
        if modules:
            for name in modules.split(","):
                for place in (file.parent, folder):
                    yield from _module(place, name.split()[0] if name.split() else "")
            continue
        above = list(file.parents)[len(dots) - 1 :][:1]
        for place in above if dots else (file.parent, folder):
            for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", names):
                yield from _module(place, f"{module}.{name}" if module else name)


def _module(place: Path, name: str) -> Iterator[Path]:
    """Yields the files that an import of this module runs: it, and its packages."""
    for part in name.split("."):
        if not part:
            return
        for file in (place / part / "__init__.py", place / f"{part}.py"):
            if file.is_file():
                yield file
        place = place / part
