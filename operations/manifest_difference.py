"""What would change in the manifests: the fresh ones against the copy that was written last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff


def difference(last: Mapping[str, str], fresh: Mapping[str, str]) -> Iterator[str]:
    """Lines of a unified diff over all files by name, without line ends; none where both are equal."""
    for name in sorted({*last, *fresh}):
        before, after = last.get(name), fresh.get(name)
        yield from unified_diff(
            (before or "").splitlines(),
            (after or "").splitlines(),
            fromfile=f"last/{name}" if before is not None else "/dev/null",
            tofile=f"now/{name}" if after is not None else "/dev/null",
            lineterm="",
        )
