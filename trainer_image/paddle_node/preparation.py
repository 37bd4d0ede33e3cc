"""What must be on the volume before this pod may say that it is ready: its shard, and the user's program.

Promises: a data job that was submitted together with this one, and still runs, is waited for until the peers'
deadline; nothing half split is ever read; what is missing or damaged is one sentence, before any training.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from paddle_node import data_manifest
from paddle_node.contract import Variable
from paddle_node.environment import NodeEnvironment
from paddle_node.failure import SettingError

POLL = 1.0
"""Seconds between two looks for the data; the data job takes minutes."""


def prepare(node: NodeEnvironment, report: Callable[[str], None]) -> None:
    """Returns when the shard is verified (and copied, where that is asked for). Raises `Failure`. Blocking."""
    from paddle_node import staging  # Pulls in the checksums' library: not before the pod has said hello.

    _wait_for_data(node, report)
    staging.stage(node.folder, node.trainer_id, node.trainers, report, node.stage_to)
    if not node.program.is_dir():
        raise SettingError(f"{Variable.TRAIN_CONFIG_DIR} is {node.train_config_dir!r}: there is no {node.program} on the volume")


def _wait_for_data(node: NodeEnvironment, report: Callable[[str], None]) -> None:
    deadline = time.monotonic() + node.peer_deadline
    said = False
    while not _there(node) and time.monotonic() < deadline:
        if not said:
            said = True
            report(f"waiting for {node.folder.data_manifest}, which the data job writes last")
        time.sleep(POLL)


def _there(node: NodeEnvironment) -> bool:
    """A manifest; or, on a volume filled by hand, a shard, unless a split is at work on it."""
    folder = node.folder
    if data_manifest.read(folder.data_manifest) is not None:
        return True
    by_hand = folder.shard(node.trainer_id).exists() or folder.older_shard(node.trainer_id).exists()
    return by_hand and not (folder.root / ".split").exists()
