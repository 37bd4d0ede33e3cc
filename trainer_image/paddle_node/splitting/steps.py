"""Pieces of work that leave their result on the volume: a split goes on where it was interrupted, and pods share it.

Promises: a step whose result is on the volume never runs again; a step that some living pod works on is left to it; a
step of a dead pod is taken over after `EXPIRY` seconds, by a new process of the same pod at once. Every step must be
deterministic and must put its output in place by rename: then two pods that do the same step, which the claims
make rare but cannot rule out, do no harm. That holds until the commit: it first moves all output away under a name that no step
writes to (`commit`), so a pod that was taken for dead and wakes late writes what nobody reads.

No lock of the file system is used (NFS only pretends): a claim is a symbolic link to the pod's name, which comes into
being whole or not at all and only once; a take-over is a rename; the age of a pod's heartbeat is measured against one's
own, so that only the volume's clock counts.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from paddle_node.splitting import sign_of_life
from paddle_node.splitting.progress import Progress

EXPIRY = 30.0
"""Seconds of silence after which a pod counts as dead."""
POLL = 0.2


class Finished(Exception):
    """Another pod has completed the whole split."""


@dataclass(frozen=True)
class Step:
    """`work` returns what later steps need to know, as JSON."""

    name: str
    work: Callable[[], Any]
    weight: int = 0
    """Bytes that it accounts for in the progress."""


class Steps:
    """The shared state of one split, in a folder of the volume."""

    def __init__(self, folder: Path, pod: str, progress: Progress, finished: Callable[[], bool]) -> None:
        self.folder = folder
        self.progress = progress
        self._pod = pod
        self._finished = finished
        self._results = folder / "results"
        self._claims = folder / "claims"
        self._pods = folder / "pods"
        self._making = folder / "making"
        self._numbers = itertools.count()
        for each in (self._results, self._claims, self._pods, self._making):
            each.mkdir(parents=True, exist_ok=True)
        self._beat = self._pods / pod
        self._beat.touch()
        # What a killed process of this pod left half written takes up room that the volume may not have.
        for leftover in self._making.glob(f"*.{pod}.*.tmp"):
            leftover.unlink(missing_ok=True)
        self._stop = threading.Event()
        self._heart = threading.Thread(target=self._live, name="heartbeat", daemon=True)
        self._heart.start()

    def close(self) -> None:
        """Ends the heartbeat, and takes it away: this pod has no step in hand, and need not be waited for."""
        self._stop.set()
        self._heart.join()
        with contextlib.suppress(OSError):
            self._beat.unlink()

    def run(self, steps: Sequence[Step], workers: int = 1) -> list[Any]:
        """Results of `steps`, in their order; runs those that nobody has done or does.

        Raises what a step raises, after the ones in hand have ended, and `Finished` when another pod was faster with it all.
        """
        results: dict[str, Any] = {}
        todo = list(steps)
        running: dict[Future[Any], Step] = {}
        weights = {step.name: step.weight for step in steps}
        with ThreadPoolExecutor(workers) as pool:
            while todo or running:
                here = {path.name for path in self._results.iterdir()} if todo and self._results.is_dir() else set()
                waiting = []
                for step in todo:
                    found = self._result(step.name) if f"{step.name}.json" in here else None
                    if (
                        found is None
                        and len(running) < workers
                        and self._claim(step.name, {each.name for each in running.values()})
                    ):
                        # Between the look at the results and the claim another pod may have finished it.
                        found = self._result(step.name)
                        if found is None:
                            running[pool.submit(self._perform, step)] = step
                            continue
                        (self._claims / step.name).unlink(missing_ok=True)
                    if found is None:
                        waiting.append(step)
                    else:
                        results[step.name] = found[0]
                        self.progress.give(weights[step.name])
                todo = waiting
                if running:
                    for future in wait(
                        running, timeout=POLL if len(running) < workers else None, return_when=FIRST_COMPLETED
                    ).done:
                        results[running.pop(future).name] = future.result()
                elif todo:
                    if self._finished():
                        raise Finished
                    time.sleep(POLL)
        return [results[step.name] for step in steps]

    def temporary(self, path: Path) -> Path:
        """Where to write what becomes `path` by rename: nobody else writes there, and what a dead pod leaves is in no shard."""
        return self._making / f"{path.name[:100]}.{self._pod}.{os.getpid()}.{next(self._numbers)}.tmp"

    @contextlib.contextmanager
    def file(self, path: Path) -> Iterator[IO[bytes]]:
        """To write what later steps read: it appears under its name whole and on the disk, or not at all."""
        path.parent.mkdir(exist_ok=True)
        temporary = self.temporary(path)
        try:
            with temporary.open("wb") as stream:
                yield stream
                stream.flush()
                # A result that outlives a power cut must not speak of bytes that did not.
                os.fsync(stream.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        temporary.replace(path)

    def _perform(self, step: Step) -> Any:
        try:
            result = step.work()
            path = self._results / f"{step.name}.json"
            temporary = self.temporary(path)
            temporary.write_text(json.dumps(result))
            temporary.replace(path)
            return result
        finally:
            (self._claims / step.name).unlink(missing_ok=True)

    def _result(self, name: str) -> tuple[Any] | None:
        try:
            return (json.loads((self._results / f"{name}.json").read_text()),)
        except (OSError, ValueError):
            return None  # Torn by a machine that lost power: the step runs again.

    def _claim(self, name: str, mine: set[str]) -> bool:
        path = self._claims / name
        if self._create(path):
            return True
        try:
            owner = str(path.readlink())
            if owner == self._pod:
                # A process of this pod that was killed; or, rarely, one that still ends beside us.
                return name not in mine
            sign = self._pods / owner if (self._pods / owner).exists() else path
            silent = self._beat.stat().st_mtime - sign.lstat().st_mtime
        except FileNotFoundError:
            return False  # Done or taken over in this moment: the next round sees.
        if silent < EXPIRY:
            return False
        stale = path.with_name(f".{name}.{self._pod}.stale")
        try:
            path.rename(stale)
        except FileNotFoundError:
            return False
        stale.unlink(missing_ok=True)
        return self._create(path)

    def _create(self, path: Path) -> bool:
        try:
            path.symlink_to(self._pod)
        except FileExistsError:
            return False
        return True

    def _live(self) -> None:
        beaten = time.monotonic()
        while not self._stop.wait(0.1):
            self.progress.tick()
            if time.monotonic() - beaten < EXPIRY / 15:
                continue
            beaten = time.monotonic()
            # It fails on a full volume, and when another pod has just completed the split and swept it away.
            with contextlib.suppress(OSError):
                os.utime(self._beat)


def at_work(folder: Path, say: Callable[[str], None]) -> bool:
    """Whether pods work on the split in `folder`."""
    return sign_of_life.awaited(
        lambda: _newest(folder / "pods"),
        EXPIRY,
        folder.parent.parent,  # The folder itself may be swept away by another pod in this moment.
        lambda: say(f"another split was at work in {folder.parent.parent}: waiting {EXPIRY:.0f} s for a sign of life"),
    )


def _newest(pods: Path) -> float:
    """When one of them was last alive; 0: none is left, or it has ended."""
    beats = [0.0]
    for path in pods.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            beats.append(path.stat().st_mtime)
    return max(beats)
