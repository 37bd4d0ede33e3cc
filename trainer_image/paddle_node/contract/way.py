"""The way in which a job trains: what a runtime means with a `command` and without one."""

from typing import NamedTuple


class Way(NamedTuple):
    """Chosen once, where a job file or a pod's variables are parsed."""

    runtime: str
    """A name that `runtimes.find_runtime` knows."""
    command: bool = False
    """The agent runs the job's own line."""
    agent: bool = True
    """Our agent runs in the pods; otherwise an operator's pods run the program alone."""

    @property
    def fault(self) -> str:
        """What is wrong with a command, or with its absence; empty: nothing."""
        if self.agent and self.command and self.runtime not in ("launch", "fleet-ps"):
            return f"is given and runtime is {self.runtime}: launch and fleet-ps take one"
        if self.agent and not self.command and self.runtime == "launch":
            return "is missing: runtime launch needs the line that trains"
        return ""

    @property
    def servers(self) -> bool:
        """Whether each pod has a parameter server."""
        return self.agent and self.runtime in ("fleet-ps", "paddle-0.x")

    @property
    def ships(self) -> bool:
        """Whether the image runs the program's train.py."""
        return not self.command and self.runtime in ("fleet-ps", "collective")

    @property
    def passes(self) -> bool:
        """Whether it trains in passes that our API counts: each trainer opens a session to show
        that it runs, and one that exits with 0 without a session has not trained.
        """
        return self.agent and self.ships

    @property
    def launches(self) -> bool:
        """Whether the agent starts the ranks of a command."""
        return self.command and self.runtime == "launch"

    @property
    def old(self) -> bool:
        """Whether it is Paddle 0.x, from an image of the user's."""
        return self.runtime == "paddle-0.x"
