#!/bin/sh
# The startup and liveness probe of a training pod: prints one sentence, and exits with 0 if the pod
# is healthy.
cd "${PADDLE_NODE_ROOT:-}/opt/paddle" && exec python3 -m paddle_node.agent.health "$@"
