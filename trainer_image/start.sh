#!/bin/sh
# The entry point of a training pod. `exec` makes the agent itself PID 1, which gets the signals.
# The user's PYTHONPATH and the like are the program's: -I keeps them away from the agent.
exec python3 -I -u -B "${PADDLE_NODE_ROOT:-}/opt/paddle/start_paddle.py" "$@"
