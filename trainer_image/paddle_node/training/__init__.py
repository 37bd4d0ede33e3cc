"""Our own training API: passes, checkpoints, metrics. In the trainer's process; programs use `paddle_node.fleet`."""
