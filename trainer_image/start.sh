#!/bin/sh
# The entry point of a training pod. `exec`: the agent itself is PID 1 and gets the signals.
exec python3 "${PADDLE_NODE_ROOT:-}/opt/paddle/start_paddle.py" "$@"
