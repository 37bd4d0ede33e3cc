"""The rehearsal's error tree: every message is one sentence that a user can act on.

`Refused` and `Unfit` are the user's to mend (exit code 2); `Failed` is a rehearsal that ran and went wrong
(exit code 1).
"""

from __future__ import annotations


class RehearsalError(Exception):
    """Anything the rehearsal itself ends with."""

    exit_code = 1


class Unfit(RehearsalError):
    """This machine, or the state of this clone, cannot run a rehearsal."""

    exit_code = 2


class Refused(RehearsalError):
    """A manifest, the Dockerfile or a setting asks for something that one machine cannot give."""

    exit_code = 2


class Failed(RehearsalError):
    """A phase went wrong; `log` holds the last lines of whatever failed."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log
