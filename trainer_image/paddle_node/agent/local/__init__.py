"""A pod's scratch as the output of its command, with `checkpoints: local`.

An attempt writes to a folder of its own there, `attempts/<run>-<n>`. The agent fills it, looks for
settled checkpoints, says which files they have, and copies those it is asked for to the volume, and
with them what belongs to no checkpoint.
"""
