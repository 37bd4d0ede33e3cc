"""How a rehearsal ends: the errors of the commands, of which each message is one sentence that a user can act on."""

from operations import errors

Refused = errors.BadInput
"""The machine, the clone, a manifest, the Dockerfile or a setting asks for what is not to be had: exit code 2."""


class Failed(errors.Failed):
    """A phase went wrong (exit code 1); `log` holds the last lines of whatever failed."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log
