#!/bin/bash
set -e
echo "$(hostname): $(date) starting"
exec python price.py --rounds "${ROUNDS:-25}" "$@"
