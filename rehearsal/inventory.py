"""What lies in the emulated account: comparable before a deploy and after a destroy.

Promises: every service that the emulator has is asked, not only those the app is known to use; what
difference() lists is there now and was not before. A key that waits for its deletion counts as gone, as it
does on a bill: AWS deletes no key at once (7 to 30 days).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Resource:
    """One thing in the account: the service, the service's own kind of thing, and its identifier."""

    service: str
    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.service} {self.type} {self.id}"


@dataclass(frozen=True)
class Inventory:
    """A snapshot of the account."""

    resources: frozenset[Resource]

    @classmethod
    def of(cls, rows: Iterable[Iterable[str]]) -> Inventory:
        """From the emulator's rows of (service, type, identifier)."""
        return cls(frozenset(Resource(*row) for row in rows))

    @staticmethod
    def difference(before: Inventory, after: Inventory) -> list[Resource]:
        """What is left: in `after` and not in `before`, sorted."""
        return sorted(after.resources - before.resources)
