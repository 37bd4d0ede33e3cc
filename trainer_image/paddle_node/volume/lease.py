"""One run at a time in a job's folder, without file locks, which a network file system may only
pretend to have.

However many runs try, only one holds the lease. A dead holder's lease expires by the waiter's own
clock, after the seconds that the lease itself names. A holder that cannot renew the lease learns
from its own clock that it must stop, before another run may take the lease.

The lease is the newest of the files lease-00001.json, lease-00002.json, ... in the run's state
folder. The only way to take it over is to create the next number by a hard link, which only one run
can do. Older files stay, so no number is used twice. A heartbeat replaces the holder's own file by
rename.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from paddle_node.contract import BOUNDS, ExitCode, Variable
from paddle_node.failure import Failure
from paddle_node.retry import disk_full, may_pass
from paddle_node.volume import durable

BEATS = 9
"""Heartbeats per lease lifetime."""
SAFE_SHARE = 2 / 3
"""Share of the lease lifetime for which a holder may continue after its last heartbeat."""


@dataclass(frozen=True)
class SeenLease:
    """A lease as found on the volume. The holder of a lease that cannot be read is unknown."""

    path: Path
    record: dict[str, Any]

    @property
    def number(self) -> int:
        return int(self.path.stem.removeprefix("lease-"))

    @property
    def run(self) -> str:
        return str(self.record.get("run", "?"))

    @property
    def released(self) -> bool:
        return bool(self.record.get("released"))

    def expiry(self, default: float) -> float:
        """Returns for how many seconds its holder may be silent; `default` if it does not say."""
        seconds = self.record.get("expiry")
        known = isinstance(seconds, float) and BOUNDS[Variable.LEASE].hold(seconds)
        return seconds if isinstance(seconds, float) and known else default


class Holder(NamedTuple):
    """Who holds a lease."""

    run: str
    renewed: float
    """When it last showed that it is alive, by the volume's clock."""
    expiry: float
    """Seconds after which its lease may be taken over."""


class TakenOver(Failure):
    """Another pod holds the lease now. `same_run`: a newer pod of the same run, which has every
    right to it.
    """

    def __init__(self, folder: Path, run: str, same_run: bool) -> None:
        who = "a newer pod of trainer 0" if same_run else f"run {run}"
        code = ExitCode.REPLACED if same_run else ExitCode.FOLDER_IN_USE
        super().__init__(
            code, f"the lease on {folder.parent.parent} was taken over by {who}: this pod ends"
        )
        self.same_run = same_run


class Lease:
    """A lease, held from `acquire` until `release`. Call `beat` every `interval` seconds."""

    def __init__(
        self, folder: Path, run_id: str, incarnation: str, expiry: float, number: int
    ) -> None:
        self.interval = expiry / BEATS
        self.path = folder / f"lease-{number:05d}.json"
        self._folder = folder
        self._run_id = run_id
        self._incarnation = incarnation
        self._beats = 0
        self._expiry = expiry
        self._safe = expiry * SAFE_SHARE
        self._renewed = time.monotonic()
        """When the last heartbeat began that both read and wrote the lease."""

    @property
    def left(self) -> float:
        """Seconds for which the holder may continue without another heartbeat."""
        return self._renewed + self._safe - time.monotonic()

    def expiry_failure(self) -> Failure:
        """Returns the failure of a holder that has no time left. Another try may find the volume
        healthy.
        """
        return Failure(
            ExitCode.CANNOT_END,
            f"the lease on {self._folder.parent.parent} could not be renewed for "
            f"{self._safe:.0f} s, and another run may take it over soon: this pod ends, and its "
            "run's attempt with it",
        )

    def check(self) -> None:
        """Raises `TakenOver` if another pod holds the lease now, `Failure` if it could not be
        renewed for too long.
        """
        if self.left <= 0:
            raise self.expiry_failure()
        self._look()

    def _look(self) -> SeenLease | None:
        newest = _newest(self._folder)
        mine = newest is None or (newest.path, newest.record.get("boot", self._incarnation)) == (
            self.path,
            self._incarnation,
        )
        if newest is not None and not mine:
            raise TakenOver(self._folder, newest.run, newest.run == self._run_id)
        return newest

    def beat(self) -> None:
        """Shows that the holder is alive. Raises `TakenOver`, or `Failure` if somebody deleted the
        lease. A failed write does not lose the lease yet.
        """
        began = time.monotonic()
        seen = self._look()
        if seen is None:
            self._refuse_deletion()
        with contextlib.suppress(OSError):
            self._write(beats=self._beats + 1)
            self._beats += 1
            if seen is not None and seen.record:
                self._renewed = began

    def _refuse_deletion(self) -> None:
        try:
            self.path.lstat()
        except FileNotFoundError:
            raise Failure(
                ExitCode.CANNOT_END,
                f"{self._folder} was deleted, with this run's lease and the record of its attempts "
                "in it, by its program or a person: this pod ends, and its run's attempt with it; "
                f"let a program empty its own `output`, and not {self._folder.parent}",
            ) from None
        except OSError:
            pass  # It cannot be renewed, either.

    def release(self) -> None:
        """Releases the lease, so that the next run may start at once."""
        with contextlib.suppress(OSError):  # It expires instead.
            self._write(beats=self._beats, released=True)

    def _write(self, **state: Any) -> None:
        draft = self._folder / f".lease.{self._incarnation}"
        with durable.Writer(draft, os.O_CREAT | os.O_TRUNC) as stream:
            stream.write(self.record(**state).encode())
        draft.replace(self.path)

    def record(self, **state: Any) -> str:
        """Returns the content of the lease's file."""
        run = {"run": self._run_id, "boot": self._incarnation, "expiry": float(self._expiry)}
        return json.dumps({**run, **state, "time": time.time()}) + "\n"


def holder(folder: Path) -> Holder | None:
    """Returns who holds the lease; None: nobody, or it was released.

    A dead holder stays until the next one takes over.
    """
    seen = _newest(folder)
    if seen is None or seen.released:
        return None
    try:
        return Holder(
            seen.run, seen.path.stat().st_mtime, seen.expiry(BOUNDS[Variable.LEASE].default or 0.0)
        )
    except FileNotFoundError:
        return holder(folder)  # The lease has just changed hands.


def measure_wait(folder: Path, expiry: float) -> float:
    """Returns for how many seconds `acquire` may wait for a silent holder."""
    seen = _newest(folder)
    return expiry if seen is None else max(expiry, seen.expiry(expiry))


def acquire(
    folder: Path,
    run_id: str,
    incarnation: str,
    expiry: float,
    say: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Waits for a silent holder until its lease has expired, at least `expiry` seconds; raises
    `Failure` (FOLDER_IN_USE) at its first sign of life.

    A pod that replaces another pod of the same run takes over at once: the Job keeps one pod per
    index. Also raises OSError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            newest = _newest(folder)
            if newest is not None and not newest.released and newest.run != run_id:
                silence = max(expiry, newest.expiry(expiry))
                say(
                    f"run {newest.run} holds {folder.parent.parent}: waiting {silence:.0f} s for "
                    "a sign of life"
                )
                _outwait(folder, newest, silence, sleep)
            lease = Lease(
                folder, run_id, incarnation, expiry, newest.number + 1 if newest is not None else 1
            )
            if durable.create(lease.path, lease.record(beats=0)):
                return lease  # Else another run was faster.
    except OSError as error:
        if may_pass(error):
            raise
        code = ExitCode.VOLUME_FULL if disk_full(error) else ExitCode.BAD_SETTING
        raise Failure(code, f"{folder} takes no file: {error.strerror or error}") from None


def _outwait(folder: Path, seen: SeenLease, silence: float, sleep: Callable[[float], None]) -> None:
    """Returns once the lease is released or gone, or has been silent for `silence` seconds by this
    process's clock.
    """
    step = min(1.0, silence / BEATS / 2)
    waited = 0.0
    while waited < silence:
        sleep(step)
        waited += step
        now = _newest(folder)
        if now is None or now.released:
            return
        if now != seen:
            sentence = f"{folder.parent.parent} is in use by run {now.run}"
            raise Failure(
                ExitCode.FOLDER_IN_USE,
                f"{sentence}: give this job another name, or wait until that run has ended",
            )


def _newest(folder: Path) -> SeenLease | None:
    """Returns the lease in force; None: there is none."""
    durable.refresh(folder)
    path = max(durable.glob(folder, "lease-*.json"), default=None)
    if path is None:
        return None
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        record = {}
    return SeenLease(path, record if isinstance(record, dict) else {})
