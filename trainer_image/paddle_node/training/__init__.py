"""Our own training API: passes, checkpoints, metrics. Runs in the trainer's process; programs use
`paddle_node.fleet`.
"""
