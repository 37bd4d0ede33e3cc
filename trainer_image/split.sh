#!/bin/sh
# Entry point of the data job. PADDLE_NODE_ROOT is empty in a container; the rehearsal puts the
# image's files below it. One malloc arena for all threads: several would keep memory that they do
# not use, and the data job promises to stay small.
export MALLOC_ARENA_MAX=1
exec python3 "${PADDLE_NODE_ROOT:-}/opt/paddle/split_data.py" "$@"
