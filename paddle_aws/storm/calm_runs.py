"""The calm runs that a receipt keeps, so that later storms of the same job need not run them
again.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_node.volume import durable
from pydantic import AwareDatetime, TypeAdapter

from paddle_aws.rehearsal.digests import digest
from paddle_aws.storm.trace import Trace

_LARGEST = 1 << 26
"""Bytes of a receipt that is read."""


@dataclass(frozen=True)
class CalmRuns:
    """Runs without faults that ended well."""

    ran: AwareDatetime
    """When they had ended."""
    digests: Mapping[str, str]
    """Of all that they ran and read: `rehearsal.digests`."""
    traces: Sequence[Trace]

    def document(self) -> dict[str, Any]:
        """Returns the text that `read` reads. The runs' lines stay in their files."""
        values = _DOCUMENT.dump_python(self, exclude={"traces": {"__all__": {"lines"}}})
        # Not by pydantic's own JSON, which has no place for a loss that is no number.
        document: dict[str, Any] = json.loads(json.dumps(values, default=str))
        return {**document, "sha256": digest(document)}

    @classmethod
    def read(cls, receipt: Path) -> "CalmRuns | None":
        """Returns the calm runs in a receipt if it is a file of this user, and they are unchanged;
        else None.
        """
        try:
            file = durable.open_file(receipt)
            if file is None:
                return None
            with file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                document = json.loads(file.read(_LARGEST))["calm_runs"]
            if document.pop("sha256") != digest(document):
                return None
            runs = _DOCUMENT.validate_json(json.dumps(document), strict=True)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None
        # Nothing was done to a calm run.
        return None if any(trace.inflicted for trace in runs.traces) else runs


_DOCUMENT = TypeAdapter(CalmRuns)
