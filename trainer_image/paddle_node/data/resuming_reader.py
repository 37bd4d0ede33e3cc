"""Reads a remote object as one stream that survives broken connections and failing servers.

Needed because neither boto3 nor the standard library resumes a body that breaks off. The stream has
each byte of the object once, in order, up to the stated end. After `TRIES` tries without a new
byte, or a break on a server without ranges, reading raises a `Failure`, and Kubernetes retries the
data job.
"""

import io
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from paddle_node.contract import ExitCode
from paddle_node.data.sources.source import Object, refuse_changed
from paddle_node.failure import Failure

TRIES = 6
FIRST_WAIT = 0.5
"""Seconds before the second try; doubled for each further try."""

T = TypeVar("T")
Breaks = tuple[type[Exception], ...]


class Interrupted(Exception):
    """The try ended early, but another one may succeed."""


def reason(error: object) -> str:
    """Describes an error without quoting addresses, or answers of any length."""
    return getattr(error, "strerror", None) or (
        error if isinstance(error, str) else type(error).__name__
    )


class RangeAnswer(NamedTuple):
    """A server's answer: bytes `begin` to `end` of the object; `end` is None if the body marks its
    own end (chunks).
    """

    begin: int
    end: int | None
    body: Any
    """Has `read` and `close`."""


class Tries:
    """Counts tries, and waits between them."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.count = 0

    def wait_after(self, error: Interrupted) -> None:
        """Waits before the next try. Raises `Failure` after the last one."""
        self.count += 1
        if self.count >= TRIES:
            raise Failure(
                ExitCode.SOURCE_UNREACHABLE,
                f"{self._what} cannot be read after {TRIES} tries: {error}",
            ) from None
        time.sleep(FIRST_WAIT * 2 ** (self.count - 1))

    def run(self, work: Callable[[], T]) -> T:
        while True:
            try:
                return work()
            except Interrupted as error:
                self.wait_after(error)


class ResumingReader(io.RawIOBase):
    """Requests the rest with `ask(offset)` when a body breaks off. `breaks` are the errors of a
    broken connection.
    """

    def __init__(
        self,
        what: str,
        thing: Object,
        ask: Callable[[int], RangeAnswer],
        breaks: Breaks,
        begin: int = 0,
        ranges: bool = True,
    ) -> None:
        self._what, self._size, self._ask, self._breaks = what, thing.size, ask, breaks
        self._position, self._ranges = begin, ranges
        self._answer: RangeAnswer | None = None
        self._ended = False
        self._tries = Tries(what)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._ranges and self._size is not None

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if not self.seekable() or self._size is None:
            raise io.UnsupportedOperation("seek")
        position = (
            offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        )
        if position != self._position:
            self._drop()
            self._position = position
        return position

    def readinto(self, buffer: Any, /) -> int:
        # Fills whole blocks across any break: an archive is recognized by its first 262 bytes.
        filled = 0
        while filled < len(buffer) and (block := self._next(len(buffer) - filled)):
            buffer[filled : filled + len(block)] = block
            filled += len(block)
        return filled

    def close(self) -> None:
        self._drop()
        super().close()

    def _next(self, amount: int) -> bytes:
        while not self._ended and (self._size is None or self._position < self._size):
            try:
                answer = self._answer = self._answer or self._ask_from_position()
                block = self._read_body(answer, amount)
                self._position += len(block)
                if not block:
                    if self._size is not None or (
                        answer.end is not None and self._position < answer.end
                    ):
                        raise Interrupted(
                            f"it ended after {self._position} of {self._size or answer.end} bytes"
                        )
                    self._ended = True
                    break
                self._tries.count = 0
                if self._size is not None and (
                    self._position > self._size
                    or (
                        self._position == self._size
                        and answer.end is None
                        and self._read_body(answer, 1)
                    )
                ):
                    refuse_changed(self._what)
                return block
            except Interrupted as error:
                self._drop()
                if self._position and not self._ranges:
                    raise Failure(
                        ExitCode.SOURCE_UNREACHABLE,
                        f"{self._what} cannot be resumed without ranges and an ETag: {error}",
                    ) from None
                self._tries.wait_after(error)
        return b""

    def _ask_from_position(self) -> RangeAnswer:
        answer = self._ask(self._position)
        if answer.begin != self._position:
            answer.body.close()
            raise Interrupted(
                f"it answered from byte {answer.begin} on instead of {self._position}"
            )
        return answer

    def _read_body(self, answer: RangeAnswer, amount: int) -> bytes:
        try:
            return bytes(answer.body.read(amount))
        except self._breaks as error:
            raise Interrupted(f"the connection broke: {reason(error)}") from None

    def _drop(self) -> None:
        if self._answer:
            self._answer.body.close()
            self._answer = None
