"""Writes the shards' files, several at a time, from records in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle_node.data_manifest import DataFile
from paddle_node.splitting.framing import Framing
from paddle_node.splitting.part_file import PartFile
from paddle_node.splitting.sequence import Order
from paddle_node.splitting.shares import Share
from paddle_node.splitting.steps import Step, Steps


def write(
    steps: Steps, order: Order, framing: Framing, shares: Sequence[Share], bytes_each: float, workers: int
) -> dict[str, tuple[DataFile, ...]]:
    """The files of each share, below `parts/<share>/` in the folder of work."""
    todo: list[tuple[Share, Step]] = []
    for share in shares:
        for name, first, last in share.parts(bytes_each):
            step = Step(
                f"part-{share.name}-{name}",
                _work(steps, order, framing, share, name, first, last),
                int((last - first) * bytes_each),
            )
            todo.append((share, step))
    results = steps.run([step for _, step in todo], workers)
    files: dict[str, list[DataFile]] = {share.name: [] for share in shares}
    for (share, _), result in zip(todo, results, strict=True):
        files[share.name].append(DataFile(**result))
    return {name: tuple(each) for name, each in files.items()}


def _work(
    steps: Steps, order: Order, framing: Framing, share: Share, name: str, first: int, last: int
) -> Callable[[], dict[str, Any]]:
    def work() -> dict[str, Any]:
        path = steps.folder / "parts" / share.name / name
        with PartFile(path, steps.temporary(path), framing, steps.progress.add) as part:
            order.write(first, last, part)
        return vars(part.done(name))

    return work
