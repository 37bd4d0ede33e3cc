"""A value that all processes of a job must have alike: a vocabulary, a list of labels, a mean.

Each trainer reads only its own shard; trainer 0 merges, and publishes by one rename under the digests of data and program. A
pserver gets the value from the trainer of its own pod, by a file in the pod's scratch: polling the volume would cost every pod
requests, and an NFS client may answer from its cache, for up to a minute, that the file is not there.
"""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_node import durable
from paddle_node.contract import JobFolder
from paddle_node.coordination import Session
from paddle_node.training.passes import Identity

LOOK = 0.01
"""Seconds between a pserver's two looks into the pod's own scratch."""


class Agreement:
    """One value of one job, in one attempt; `scratch` is a folder that pserver and trainer of a pod share."""

    def __init__(self, folder: JobFolder, identity: Identity, scratch: Path, attempt: int, name: str) -> None:
        key = hashlib.sha256(f"{identity.data} {identity.program}".encode()).hexdigest()
        self.name = name
        self.file = folder.output / "agreed" / f"{name}-{key[:16]}.json"
        self._handed_on = scratch / "agreed" / f"attempt-{attempt}" / self.file.name

    def reach(self, session: Session, own: Callable[[], Any], merge: Callable[[list[Any]], Any]) -> Any:
        """In a trainer: `merge` of every shard's `own()`, the same on all. Costs one read where it was reached before."""
        # All trainers must take the same branch: only trainer 0 looks.
        known = session.gather(f"{self.name} known", self.file.is_file() if session.trainer_id == 0 else None)[0]
        if not known:
            # By way of the volume: a vocabulary is too large for a message.
            stem = f"{self.file.stem}.attempt-{session.attempt}.trainer-"
            parts = [self.file.with_name(f"{stem}{trainer}") for trainer in range(session.trainers)]
            durable.write(parts[session.trainer_id], json.dumps(own()))
            session.barrier(f"{self.name} counted")
            if session.trainer_id == 0:
                durable.write(self.file, json.dumps(merge([json.loads(part.read_text()) for part in parts])))
                for part in parts:
                    part.unlink()
            session.barrier(f"{self.name} merged")
        text = self.file.read_text()
        durable.write(self._handed_on, text)
        return json.loads(text)

    def wait(self) -> Any:
        """In a pserver: the value as soon as this pod's trainer has it. If it never comes, the agent ends the process."""
        while not self._handed_on.is_file():
            time.sleep(LOOK)
        return json.loads(self._handed_on.read_text())
