#!/bin/sh
# The entry point of a training pod. `exec` makes the agent itself PID 1, which gets the signals.
exec python3 "${PADDLE_NODE_ROOT:-}/opt/paddle/start_paddle.py" "$@"
