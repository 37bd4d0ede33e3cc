"""A process that imports what is slow to import while the pod still waits for its peers.

`python -m paddle_node.agent.standby <module>...` imports the modules, then reads ONE line from its standard input, the
JSON object {"argv": [...], "environ": {...}}, and becomes that Python program; it ends with 0 when its input ends first.

From then on it is the process that `argv` would have been: arguments, environment, `__main__`, signals. What a module reads from
the environment while it is imported must be in the standby's own environment already.
"""

import gc
import importlib
import json
import os
import runpy
import sys
import zlib  # noqa: F401  Paddle brings its own zlib: Python's must have been loaded first (see paddle_node.training.program).


def main() -> None:
    """See the module. The interpreter, `argv[0]`, is this one already."""
    # Nothing that an import makes is garbage: to look for some costs a twentieth of Paddle's, and more in each later search.
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
