"""Tries a training program on the first records of its source, in one process.

    python -m paddle_node.training.trial <train.py> <arguments>

The program runs as in a pod, but alone and with local embeddings. If the program or its data has a
fault, the trial exits with 2 and one sentence, with the program's own line; if the source cannot be
reached from here, it exits with 68. A command is not run: its script is parsed, and its imports are
looked up. The trial writes only to the working directory, the caller's scratch folder.
"""

import ast
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle_node import command_line, environment, own_code
from paddle_node.contract import ExitCode, Variable
from paddle_node.failure import Failure, Finished, SettingError, leave
from paddle_node.training.program import run


def _command(words: Sequence[str], folder: Path) -> None:
    script = command_line.script(words)
    if not script:
        print(f"{words[0]} names no Python file, so nothing was tried: a rehearsal runs it")
        return
    tree = ast.parse((folder / script).read_bytes(), str(folder / script))
    sys.path.insert(0, str((folder / script).parent))
    wanted = [
        (alias.name, one.lineno)
        for one in tree.body
        if isinstance(one, ast.Import)
        for alias in one.names
    ]
    wanted += [
        (one.module or "", one.lineno)
        for one in tree.body
        if isinstance(one, ast.ImportFrom) and not one.level
    ]
    for name, line in wanted:
        module = name.partition(".")[0]
        if importlib.util.find_spec(module) is None:
            raise SettingError(
                f"{script}:{line}: there is no module {module}: name its package in "
                "program.requirements"
            )
    print(
        f"{script} has no syntax error, and all that it imports is there; a command is not run "
        "here: a rehearsal runs it"
    )


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
