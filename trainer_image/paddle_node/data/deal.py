"""Deals records to the shards, and holds some out for evaluation.

Within an index, shards differ by at most 1 record. With a seed, each record goes to a random shard,
and the held-out records are a random sample. Without one, records go round-robin in the source's
order. The same records, seed and settings give equal bytes.
"""

import random
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from paddle_node.data.parts import Streams

CHUNK = 2048
"""Records dealt together, while their bytes are in the processor's cache."""
LARGE = 4 << 20
"""Approximate bytes beyond which a chunk may have fewer records."""
LAST = 2
"""Records, besides the last one, that wait for `finish`, which may have this many more to hold out.
"""
ORDERS = 64
"""Precomputed orders. Each chunk gets a random one, which is as good as a new order, and much
faster.
"""
TOGETHER = 128
"""Minimum records of a chunk that go to the same file."""
HELD_OUT = "held-out"


class Deal:
    """Deals the records of one index: of `taken` records, `held` are held out."""

    def __init__(
        self,
        streams: Streams,
        shards: int,
        hold_out: float,
        seed: str | None,
        first: int,
    ) -> None:
        """The first record goes to shard `first`, each next one to the next shard."""
        self.taken = self.held = self._dealt = 0
        self._streams, self._shards, self._hold_out, self._next = streams, shards, hold_out, first
        self._pending: list[bytes] = []
        self._chance = random.Random(f"{seed}/1") if seed is not None else None
        self._orders: list[Any] = []
        if seed is not None:
            orders = random.Random(f"{seed}/orders")
            self._orders = [itemgetter(*orders.sample(range(CHUNK), CHUNK)) for _ in range(ORDERS)]

    def take(self, records: list[bytes]) -> None:
        """Deals all but a few records, which wait until their count is known."""
        self.taken += len(records)
        self._pending += records
        at = 0
        while len(self._pending) - at > CHUNK + LAST:
            self._chunk(self._pending[at : at + CHUNK])
            at += CHUNK
        if sum(map(len, self._pending[at:])) > LARGE and len(self._pending) - at > 1:
            self._chunk(self._pending[at:-1])
            at = len(self._pending) - 1
        del self._pending[:at]

    def finish(self, held: int) -> None:
        """Deals the remaining records so that `held` records are held out in total, if enough are
        left.
        """
        rest, self._pending = self._pending, []
        self._deal(self._hold(self._shuffle(rest), max(0, min(held - self.held, len(rest)))))

    def _chunk(self, records: Sequence[bytes]) -> None:
        self._dealt += len(records)
        self._deal(
            self._hold(self._shuffle(records), int(self._dealt * self._hold_out) - self.held)
        )

    def _shuffle(self, records: Sequence[bytes]) -> Sequence[bytes]:
        if not self._chance:
            return records
        if len(records) == CHUNK:
            shuffled: Sequence[bytes] = self._orders[int(self._chance.random() * ORDERS)](records)
            return shuffled
        return self._chance.sample(records, len(records))

    def _deal(self, records: Sequence[bytes]) -> None:
        for number in range(min(self._shards, len(records))):
            self._give((self._next + number) % self._shards, records[number :: self._shards])
        self._next += len(records)

    def _hold(self, records: Sequence[bytes], many: int) -> Sequence[bytes]:
        if not many:
            return records
        self.held += many
        if self._chance:
            held, kept = records[:many], records[many:]
        else:
            places = {(2 * which + 1) * len(records) // (2 * many) for which in range(many)}
            held = [record for at, record in enumerate(records) if at in places]
            kept = [record for at, record in enumerate(records) if at not in places]
        self._streams.add(HELD_OUT, 0, held, many)
        return kept

    def _give(self, shard: int, records: Sequence[bytes]) -> None:
        files = self._streams.many
        if not self._chance or files == 1:
            self._streams.add(str(shard), 0, records, len(records))
            return
        groups = max(1, min(files, len(records) // TOGETHER))
        first = int(self._chance.random() * files)
        for group in range(groups):
            part = records[group * len(records) // groups : (group + 1) * len(records) // groups]
            self._streams.add(
                str(shard), (first + group * files // groups) % files, part, len(part)
            )
