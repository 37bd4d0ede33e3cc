#!/bin/sh
# The start-up and liveness probe of a training pod: one sentence, and 0 when the pod is healthy.
cd "${PADDLE_NODE_ROOT:-}/opt/paddle" && exec python3 -m paddle_node.agent.health "$@"
