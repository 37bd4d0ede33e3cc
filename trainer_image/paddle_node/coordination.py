"""How a trainer process talks to the other trainers through the rendezvous server.

`barrier` and `gather` return when all N trainers of this attempt have arrived, and raise
`AttemptEnded` at once when the attempt is over. Trainer and server both prove that they belong to
the attempt.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from paddle_node.environment import WorkerEnvironment
from paddle_node.rendezvous import handshake
from paddle_node.rendezvous import messages as m

SERVER_SILENCE = 30.0
"""Seconds of silence after which the server counts as dead; it sends every waiting trainer a
message each second.
"""
CONNECT = 30.0
"""Seconds to reach the server, which was up when this process started."""
PAUSE = 0.1
"""Seconds between two tries to join."""
PROGRESS_EVERY = 1.0
"""Seconds between two reports of progress, or of a long meeting; calls in between cost one clock
reading.
"""
LONGEST = 4 * 1024 * 1024
"""Bytes of one message; a gathered value that is larger belongs in a file."""


class AttemptEnded(Exception):
    """A process or pod of this attempt was lost: leave; the agents start the next attempt."""


class _Disconnected(AttemptEnded):
    """The server closed the connection, or is gone."""


class Session:
    """One trainer's place in one attempt. Not for use by several threads of the program."""

    def __init__(self, connection: socket.socket, worker: WorkerEnvironment) -> None:
        """Raises `AttemptEnded` if the other side is not this attempt's server."""
        self.trainer_id = worker.trainer_id
        self.trainers = worker.trainers
        self.attempt = worker.attempt
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._reported = -PROGRESS_EVERY
        self._sending = threading.RLock()
        self._meeting: tuple[str, float] | None = None
        self._told_of_meeting = False
        self._watch: threading.Thread | None = None
        self.waited = 0.0
        """Seconds for which this trainer has waited for others."""
        self._introduce(worker)
        self._receive(m.Welcome)

    def _introduce(self, worker: WorkerEnvironment) -> None:
        join = m.Join(worker.trainer_id, worker.attempt)
        dialogue = handshake.introduce(worker.session_key, join)
        lines = next(dialogue)
        while True:
            self._write(lines)
            try:
                lines = dialogue.send(self._read_line())
            except StopIteration as end:
                if not end.value:
                    raise _foreign_server() from None
                return
            except ValueError as error:
                raise _foreign_server(error) from None

    def servers(self) -> None:
        """Returns when the pservers of all N pods listen."""
        self._ask(m.Gather(m.SERVERS, None))

    def barrier(self, name: str) -> None:
        """Returns when all N trainers have called it with the same name. A name may be used
        again.
        """
        self.gather(name, None)

    def gather(self, name: str, value: Any) -> list[Any]:
        """Returns every trainer's JSON value, by trainer id, when all N have called it with the
        same name.
        """
        return self._ask(m.Gather(f"barrier {name}", value)).values or []

    def progress(
        self,
        number: int,
        step: int,
        steps: int = 0,
        spent: Mapping[str, float] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Tells the health probe that training makes progress. Sends at most one message a second,
        unless `at_once` is set.

        `steps` and `spent` are those of the whole attempt.
        """
        now = time.monotonic()
        if at_once or now - self._reported >= PROGRESS_EVERY:
            self._reported = now
            self._send(m.Step(number, step, steps, dict(spent or {})))

    @contextlib.contextmanager
    def meeting(self, name: str) -> Iterator[None]:
        """Wraps a call in which all N trainers meet without the server, so that the probe can tell
        which trainer is missing.
        """
        if self._watch is None:
            self._watch = threading.Thread(
                target=self._tell_of_meetings, name="meetings", daemon=True
            )
            self._watch.start()
        self._meeting = (name, time.monotonic())
        try:
            yield
        finally:
            self.waited += time.monotonic() - self._meeting[1]
            with self._sending:
                self._meeting = None
                if self._told_of_meeting:
                    self._told_of_meeting = False
                    self._send(m.Meeting(""))

    def _tell_of_meetings(self) -> None:
        with contextlib.suppress(AttemptEnded):  # The agent ends this process.
            while True:
                time.sleep(PROGRESS_EVERY)
                with self._sending:
                    if (
                        self._meeting is not None
                        and time.monotonic() - self._meeting[1] >= PROGRESS_EVERY
                    ):
                        self._told_of_meeting = True
                        self._send(m.Meeting(self._meeting[0]))

    def leave(self) -> None:
        """Waits until all N trainers leave; from then on a pserver may end. The session is over."""
        self._ask(m.Gather(m.LEAVE, None))
        self._lines.close()
        self._connection.close()

    def _ask(self, question: m.Message) -> m.Answer:
        self._send(question)
        asked = time.monotonic()
        while not isinstance(answer := self._receive(m.Answer, m.Beat), m.Answer):
            pass
        self.waited += time.monotonic() - asked
        return answer

    def _send(self, message: m.Message) -> None:
        line = m.encode(message)
        if len(line) > LONGEST:
            name = getattr(message, "name", "the message")
            raise ValueError(f"{name} has {len(line)} bytes: at most {LONGEST} fit in one value")
        self._write(line)

    def _write(self, line: bytes) -> None:
        try:
            with self._sending:
                self._connection.sendall(line)
        except OSError as error:
            raise _Disconnected(f"the rendezvous server is gone: {error}") from None

    def _receive(self, *expected: type[m.Message]) -> Any:
        try:
            message = m.parse(self._read_line(), *expected, m.End)
        except ValueError as error:
            raise _foreign_server(error) from None
        if isinstance(message, m.End):
            raise AttemptEnded(message.cause)
        return message

    def _read_line(self) -> bytes:
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise AttemptEnded(
                f"the rendezvous server said nothing for {SERVER_SILENCE:.0f} s"
            ) from None
        except OSError as error:
            raise _Disconnected(f"the rendezvous server is gone: {error}") from None
        if not line:
            raise _Disconnected("the rendezvous server closed the connection")
        return line


def _foreign_server(error: ValueError | None = None) -> AttemptEnded:
    detail = f": {error}" if error is not None else ""
    return AttemptEnded(f"what answers is not this run's rendezvous server{detail}")


def join(environ: Mapping[str, str] = os.environ) -> Session:
    """Joins the attempt that this process's environment names. Raises `AttemptEnded` if that
    attempt is over.
    """
    worker = WorkerEnvironment.read(environ)
    host, _, port = worker.server.rpartition(":")
    deadline = time.monotonic() + CONNECT
    while True:
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT)
        except OSError as error:
            raise AttemptEnded(
                f"the rendezvous server at {worker.server} cannot be reached: {error}"
            ) from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(SERVER_SILENCE)
        try:
            return Session(connection, worker)
        except _Disconnected:
            # Among many strangers, the server may take a trainer for one of them.
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE)
