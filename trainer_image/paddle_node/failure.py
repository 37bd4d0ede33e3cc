"""One error for everything that ends a pod on purpose: an exit code of the contract, and one
sentence for people.
"""

import os
import sys
from typing import Any, NoReturn

from paddle_node.contract import ExitCode


class Failure(Exception):
    """Ends the pod with `code`; `sentence` is all that a user sees."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = int(code)
        self.sentence = sentence


class BadSetting(Failure):
    """A setting is missing or wrong: names it, what was found and what is allowed."""

    def __init__(self, sentence: str) -> None:
        super().__init__(ExitCode.BAD_SETTING, sentence)


class BadData(Failure):
    """The data, or something saved from it, is missing, damaged or unusable: names it and says what
    to do.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(ExitCode.BAD_DATA, sentence)


class Finished(BaseException):
    """Ends an evaluated or tried program, past any `except Exception` of its own."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(result)
        self.result = result


def leave(code: int) -> NoReturn:
    """Ends the process without Python's own cleanup: Paddle's threads outlive the cleanup, and have
    crashed during it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
