"""How a pod ends, and what its Job does then."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a pod ends; any other code is the trainer's own. The numbers are those of sysexits.h
    where it has the same meaning.
    """

    DONE = 0
    BAD_SETTING = 2
    """A setting is missing or wrong: the message names it."""
    BAD_DATA = 65
    """The shards do not match the manifest, or this job."""
    SOURCE_UNREACHABLE = 68
    """The data's source broke off or answered 5xx more often than the retries allow: another try
    may help.
    """
    PEERS_MISSING = 69
    """A deadline passed and peers were missing: the message names or counts them."""
    ATTEMPTS_EXHAUSTED = 70
    """Every allowed attempt failed: the message names the cause of each."""
    NODE_UNFIT = 71
    """The node lacks GPUs or adapters that the job asked for, or its all-reduce fails: the message
    names it.
    """
    FOLDER_IN_USE = 73
    """Another run holds the job's folder."""
    VOLUME_FULL = 74
    """The volume accepted no more bytes; what was complete before is intact."""
    CANNOT_END = 75
    """The volume hangs, or a process that waits for it does not end: the pod leaves, so that its
    replacement starts clean.
    """
    REPLACED = 76
    """A newer pod with this pod's trainer id has taken its place."""
    NOT_PERMITTED = 77
    """The API server refused (401, 403): the message names the missing Role."""
    KILLED_AGAIN = 79
    """The container was killed and restarted in its pod too often: the Job counts the pod, and
    creates another.
    """
    TERMINATED = 143
    """SIGTERM: saved, then left within the grace period."""


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
