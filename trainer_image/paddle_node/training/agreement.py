"""A value that must be the same in all processes of a job: a vocabulary, a list of labels, a mean.

Each trainer reads only its own shard. Trainer 0 merges, and publishes with one rename under the
digests of data and program. A pserver gets the value from its own pod's trainer, through a file in
the pod's scratch folder. It does not poll the volume: that would cost every pod requests, and for
up to a minute an NFS client may answer from its cache that the file does not exist.
"""

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from paddle_node.coordination import Session
from paddle_node.environment import PodEnvironment
from paddle_node.volume import durable

LOOK_INTERVAL = 0.01
"""Seconds between a pserver's looks into its pod's scratch folder."""


def agree_on(
    name: str,
    pod: PodEnvironment,
    attempt: int,
    session: Session | None,
    count: Callable[[], Any],
    merge: Callable[[list[Any]], Any],
) -> Any:
    """In a trainer: returns `merge` of every shard's `count()`, the same in all trainers. Costs one
    read if it was agreed before.

    In a pserver, which has no `session`: returns the value as soon as this pod's trainer has it. If
    it never does, the agent ends the process.
    """
    key = hashlib.sha256(f"{pod.identity.data} {pod.identity.program}".encode()).hexdigest()
    file = pod.folder.output / "agreed" / f"{name}-{key[:16]}.json"
    handed_on = pod.home / "agreed" / f"attempt-{attempt}" / file.name
    if session is None:
        while not handed_on.is_file():
            time.sleep(LOOK_INTERVAL)
        return json.loads(handed_on.read_text())
    # All trainers must take the same branch, so only trainer 0 looks.
    exists = session.gather(f"{name} known", file.is_file() if session.trainer_id == 0 else None)[0]
    if not exists:
        # The parts go through the volume: a vocabulary is too large for a message.
        stem = f"{file.stem}.attempt-{attempt}.trainer-"
        parts = [file.with_name(f"{stem}{trainer}") for trainer in range(session.trainers)]
        durable.write(parts[session.trainer_id], json.dumps(count()))
        session.barrier(f"{name} counted")
        if session.trainer_id == 0:
            durable.write(file, json.dumps(merge([json.loads(part.read_text()) for part in parts])))
            for part in parts:
                part.unlink()
        session.barrier(f"{name} merged")
    text = file.read_text()
    durable.write(handed_on, text)
    return json.loads(text)
