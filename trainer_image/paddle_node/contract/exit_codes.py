"""How a pod ends, and what its Job does then."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a pod ends; any other code is the trainer's own. The numbers are those of sysexits.h
    where it has the same meaning.
    """

    DONE = 0
    """The job is complete on the volume."""
    BAD_SETTING = 2
    """A setting is missing or wrong; the message names it. Correct it and submit again."""
    BAD_DATA = 65
    """Shards do not match the manifest or this job, records are unusable, or pods read different
    data or programs. Split the data again.
    """
    SOURCE_UNREACHABLE = 68
    """The data's source, or the package index, does not answer. Wait for the retry."""
    PEERS_MISSING = 69
    """Pods were missing at a deadline. `paddle-aws status` says what they lack."""
    ATTEMPTS_EXHAUSTED = 70
    """Failures without progress. Read the `train.log` that the message names."""
    NODE_UNFIT = 71
    """A GPU or EFA adapter is missing, or the all-reduce of the node check fails. Cordon the node
    that the message names.
    """
    FOLDER_IN_USE = 73
    """Another run of the same job name holds the folder. Choose another name, or wait."""
    VOLUME_FULL = 74
    """The volume accepts no more bytes; complete passes are intact. Make room."""
    CANNOT_END = 75
    """The volume hangs, or the lease could not be renewed. Look at the volume."""
    REPLACED = 76
    """A newer pod of the same rank took this one's place."""
    NOT_PERMITTED = 77
    """The API server refused (401, 403): apply the job's Role, or use `discovery: index`."""
    KILLED_AGAIN = 79
    """The container was killed too often. Out of memory? Raise `resources.memory`."""
    TERMINATED = 143
    """SIGTERM (a drained node, a deleted Job): its trainers saved. Nothing to do."""


FAIL_JOB = (
    ExitCode.BAD_SETTING,
    ExitCode.BAD_DATA,
    ExitCode.ATTEMPTS_EXHAUSTED,
    ExitCode.FOLDER_IN_USE,
    ExitCode.NOT_PERMITTED,
)
"""Codes after which another try cannot help: the Job fails at once."""

RESTART_IN_PLACE = (137,)
"""128 + SIGKILL, also when memory ran out: no program decided to end, so the kubelet restarts the
container in its pod. Never 143: a container that the kubelet itself ends has lost its sandbox, and
its pod would wait for a restart indefinitely.
"""
