"""Tries a training program on the first records of its source, in one process.

    python -m paddle_node.training.trial <train.py> <arguments>

The program runs as in a pod, but alone and with local embeddings. If the program or its data has a
fault, the trial exits with 2 and one sentence that names the program's line. If this machine cannot
reach the source, it exits with 68. A command is not run: its script is parsed, and its imports are
looked up. The trial writes only to the working directory, the caller's scratch folder.
"""

import ast
import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle_node import command_line, environment, own_code
from paddle_node.contract import ExitCode, Variable
from paddle_node.failure import BadSetting, Failure, Finished, leave
from paddle_node.training.program import run


def _command(words: Sequence[str], folder: Path) -> None:
    script = command_line.script(words)
    if not script or not (folder / script).is_file():
        print(
            f"{' '.join(words[:3])} names no Python file of the program, so nothing was checked: "
            "`paddle-aws try --run` runs it"
        )
        return
    tree = ast.parse((folder / script).read_bytes(), str(folder / script))
    sys.path.insert(0, str((folder / script).parent))
    modules = [
        (alias.name, statement.lineno)
        for statement in tree.body
        if isinstance(statement, ast.Import)
        for alias in statement.names
    ]
    modules += [
        (statement.module or "", statement.lineno)
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom) and not statement.level
    ]
    unknown: dict[str, str] = {}
    for name, line in modules:
        module = name.partition(".")[0]
        if module in unknown or _exists(module):
            continue
        why = _place(module, folder) or _other_path((folder / script).read_text(errors="replace"))
        if not why:
            raise BadSetting(
                f"{script}:{line}: there is no module {module}: name its package in "
                "program.requirements"
            )
        unknown[module] = f"{script}:{line}: {module} was not checked: {why}"
    print(*unknown.values(), sep="\n", end="\n" * bool(unknown))
    print(
        f"{script} has no syntax error, and all {'else ' if unknown else ''}that it imports is "
        "there; `paddle-aws try --run` runs it for a few steps"
    )


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # A module that stands in for another.
        return True


def _place(module: str, folder: Path) -> str:
    """Returns where the program's own folder has a module that Python's path does not lead to."""
    for path in sorted(folder.rglob(f"{module}*"), key=lambda path: (len(path.parts), path)):
        if path.name == module and path.is_dir():
            where = f"{path.relative_to(folder)}/"
            return f"it is {where} of the program's folder"
        if path.stem.partition(".")[0] == module and path.suffix in (".py", ".so"):
            return f"it is {path.relative_to(folder)} of the program's folder"
    for name in ("setup.py", "setup.cfg", "pyproject.toml"):
        with contextlib.suppress(OSError):
            if re.search(rf"\b{re.escape(module)}\b", (folder / name).read_text(errors="replace")):
                return f"{name} names it, which installs the program's folder"
    return ""


def _other_path(text: str) -> str:
    """Returns how a script may find modules elsewhere; empty: it has no way that is known."""
    if os.environ.get(Variable.TRIED_IMAGE):
        return "the job has an image of its own, whose packages are not here"
    way = re.search(r"sys\.(path|meta_path|modules)|addsitedir|importlib|\bpip\b|\bexec\(", text)
    return f"the script may find it by `{way[0]}`" if way else ""


def main() -> int:
    """Tries the program in `sys.argv[1]`. Returns the exit code."""
    program = Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.dont_write_bytecode = True
    os.environ.setdefault(
        "GLOG_minloglevel", "2"
    )  # Otherwise Paddle prints which executor it chose.
    try:
        if command := environment.Reader().words(Variable.COMMAND):
            _command(command, program.parent)
            return ExitCode.DONE
        run()
        sentence = f"{program.name} ended without a call of job.run or job.run_collective"
    except Finished:
        return ExitCode.DONE
    except Failure as failure:
        sentence = failure.sentence
        if failure.code == ExitCode.SOURCE_UNREACHABLE:
            print(sentence, file=sys.stderr)
            return failure.code
    except (Exception, SystemExit) as error:
        sentence = own_code.summary(error)
    print(sentence, file=sys.stderr)
    return ExitCode.BAD_SETTING


if __name__ == "__main__":
    leave(main())
