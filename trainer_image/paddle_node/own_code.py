"""Where in the user's own code an error comes from: never a frame of this package, of Python or of
an installed package.
"""

import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NOT_OWN = (str(Path(__file__).parent), sys.prefix, sys.base_prefix, "<")
_PADDLES_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_PADDLES_SUMMARY = re.compile(r"^ *(?:(\w+Error): |(?=\(\w+\) ))(.*)$", re.MULTILINE)

_SAME_NAME = re.compile(r"^Variable '.*' has been created before")


def summary(error: BaseException) -> str:
    """Returns the error in one line, with the line of the user's code that it comes from."""
    kind, text, where = type(error).__name__, str(error), line(error)
    # An operator of a static network fails where it runs; Paddle's message says where it was
    # created, and then what is wrong.
    frames = [
        f"{_show(file)}:{number}" for file, number in _PADDLES_FRAME.findall(text) if _is_ours(file)
    ]
    if says := _PADDLES_SUMMARY.findall(text):
        kind, text, where = says[-1][0] or kind, says[-1][1], frames[-1] if frames else where
    elif isinstance(error, SyntaxError) and error.filename and _is_ours(error.filename):
        text, where = error.msg, f"{_show(error.filename)}:{error.lineno}"
    means = "; two inputs or embeddings of the network have this name: give each its own"
    means = means if _SAME_NAME.match(text) else ""
    return f"{kind}: {' '.join(text.split())}{f' ({where})' if where else ''}{means}"


def line(error: BaseException) -> str:
    """Returns the innermost line of the user's code, such as `train.py:14`; empty: there is
    none.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if _is_ours(frame.filename)
    ]
    return f"{_show(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def describe_place(function: Callable[..., Any]) -> str:
    """Returns where a function begins, such as `train.py:31`, or else its name."""
    code = getattr(function, "__code__", None)
    return (
        f"{_show(code.co_filename)}:{code.co_firstlineno}"
        if code
        else getattr(function, "__name__", repr(function))
    )


def _is_ours(file: str) -> bool:
    return not file.startswith(_NOT_OWN) and "/site-packages/" not in file


def _show(file: str) -> str:
    program = Path(sys.argv[0]).resolve().parent
    return str(Path(file).relative_to(program)) if Path(file).is_relative_to(program) else file
