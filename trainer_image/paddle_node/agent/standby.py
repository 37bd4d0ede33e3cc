"""A process that imports what is slow to import while the pod still waits for its peers.

`python -m paddle_node.agent.standby <module>...` imports the modules, reads ONE line from its
standard input, the JSON object {"argv": [...], "environ": {...}}, and then runs as that Python
program. It ends with 0 if its input ends first.

From then on it is the process that `argv` would have started: arguments, environment, `__main__`,
signals. What a module reads from the environment on import must already be in the standby's own
environment.
"""

import gc
import importlib
import json
import os
import runpy
import sys
import zlib  # noqa: F401  Paddle brings its own zlib: Python's must have been loaded first (see paddle_node.training.program).


def main() -> None:
    """See the module. This process already is the interpreter that `argv[0]` names."""
    # Imports create no garbage: to look for it costs a twentieth of Paddle's import time, and more
    # in each later collection.
    gc.disable()
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    line = sys.stdin.readline()
    if not line:
        return
    become = json.loads(line)
    sys.stdin.close()
    sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115  It stays open as long as the process.
    os.environ.clear()
    os.environ.update(become["environ"])
    arguments = become["argv"][1:]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
