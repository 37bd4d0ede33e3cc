"""One error for everything that ends a pod on purpose: an exit code of the contract, and one sentence for people.

Promises: whoever raises a `Failure` has said what was found, what is allowed and what to do; `__main__` prints
the sentence, without a traceback, and exits with the code.
"""

from __future__ import annotations

from paddle_node.contract import ExitCode


class Failure(Exception):
    """Ends the pod with `code`; `sentence` is all that a user sees."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = int(code)
        self.sentence = sentence

    def __reduce__(self) -> tuple[type[Failure], tuple[int, str]]:
        """From one process to another."""
        return Failure, (self.code, self.sentence)


class SettingError(Failure):
    """A setting is missing or wrong: names it, what was found and what is allowed."""

    def __init__(self, sentence: str) -> None:
        super().__init__(ExitCode.BAD_SETTING, sentence)
