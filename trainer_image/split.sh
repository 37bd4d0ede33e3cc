#!/bin/sh
# Entry point of the data job. PADDLE_NODE_ROOT is empty in a container; the rehearsal puts the image's files below it.
exec python3 "${PADDLE_NODE_ROOT:-}/opt/paddle/split_data.py" "$@"
