"""Where a pod's processes listen: the first port is the tutorials', the others are ours."""

FIRST_PORT = 7164
CONTROL_PORT = 7163
METRICS_PORT = 7161
"""Where agents serve metrics in jobs that let somebody read them."""
METRICS_PATH = "/metrics"
TRAINER_PORTS_FROM = 8500
"""fleet's trainers listen from this port upwards, with one port for each trainer of the same
address.
"""
MOST_PROCESSES = 16
"""The most processes of a command in one pod."""
MASTER_PORTS = MOST_PROCESSES
"""Offset of rank 0's two ports from the first port: after the ranks' ports, and clear of every
pserver's, because Paddle binds them on all addresses, also on a machine that rehearses other jobs.
"""
