"""Faults of NFS itself: what a pod sees of them, and that the code that uses the volume
recovers.
"""

from __future__ import annotations

from pathlib import Path

from nfs_machine import Volume, server_down
from paddle_node import retry


def test_nfs_a_file_replaced_while_it_is_read_and_the_server_restarts_is_stale_and_read_again(
    volume: Volume,
) -> None:
    (volume.a / "shard").write_bytes(b"old" * 1_000_000)
    faults: list[str] = []

    def work() -> bytes:
        with (volume.b / "shard").open("rb", buffering=0) as stream:
            begun = stream.read(1000)
            if not faults:
                (volume.a / "draft").write_bytes(b"new" * 1_000_000)
                (volume.a / "draft").replace(volume.a / "shard")
                with server_down():
                    pass
                Path("/proc/sys/vm/drop_caches").write_text("3")
            return begun + stream.read()

    assert retry.retry(work, faults.append) == b"new" * 1_000_000
    assert faults == ["the volume: Stale file handle; trying again in 0.5 s"]
