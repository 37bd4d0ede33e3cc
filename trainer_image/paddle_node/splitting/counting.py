"""How many lines lie where: what a fair division needs to know before the first byte is written.

Promises: after `count`, every unit knows its records and can find each by number; memory is two integers for
each 4 MiB of data; several threads and pods count at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paddle_node.splitting import newlines
from paddle_node.splitting.framing import LINES
from paddle_node.splitting.steps import Step, Steps
from paddle_node.splitting.units import BLOCK, MARK, Unit

SEGMENT = 256 << 20
"""Bytes of a unit that one step counts or shuffles; a multiple of `MARK`."""


def segments(unit: Unit) -> list[tuple[int, int]]:
    """A unit's bytes in pieces of at most `SEGMENT`."""
    return [(start, min(start + SEGMENT, unit.size)) for start in range(0, unit.size, SEGMENT)]


def count(steps: Steps, units: Sequence[Unit], workers: int) -> None:
    """Fills in the units' records and marks."""
    lines = [unit for unit in units if unit.framing is LINES]
    newline = newlines.counter(sum(unit.size for unit in lines))
    todo = [
        Step(f"count-{unit.number:06d}-{start // SEGMENT:06d}", _work(steps, unit, start, end, newline), end - start)
        for unit in lines
        for start, end in segments(unit)
    ]
    results = iter(steps.run(todo, workers))
    for unit in lines:
        passed = offset = 0
        for start, _ in segments(unit):
            offset = start
            for found in next(results):
                unit.offsets.append(offset)
                unit.passed.append(passed)
                passed += found
                offset += MARK
        unit.records = passed + (0 if _ends_with_newline(unit) else 1)


def _work(
    steps: Steps, unit: Unit, start: int, end: int, newline: Callable[[newlines.Block, int], int]
) -> Callable[[], list[int]]:
    def work() -> list[int]:
        found: list[int] = []
        buffer = bytearray(BLOCK)
        with unit.path.open("rb", buffering=0) as stream:
            stream.seek(start)
            for mark in range(start, end, MARK):
                total, left = 0, min(MARK, end - mark)
                while left > 0:
                    filled = stream.readinto(memoryview(buffer)[: min(BLOCK, left)])
                    if not filled:
                        raise OSError(f"{unit.path} became shorter while it was read")
                    total += newline(buffer, filled)
                    left -= filled
                    steps.progress.add(filled)
                found.append(total)
        return found

    return work


def _ends_with_newline(unit: Unit) -> bool:
    if unit.size == 0:
        return True
    with unit.path.open("rb") as stream:
        stream.seek(-1, 2)
        return stream.read(1) == b"\n"
