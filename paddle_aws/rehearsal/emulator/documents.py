"""Systems Manager's documents, which MiniStack lacks: this module keeps what the templates say.

Limits: botocore does not check a document, no call returns one, only the last version is kept, and
no session starts.
"""

from __future__ import annotations

import json

from ministack.core.responses import AccountRegionScopedDict
from ministack.services import ssm
from resource_types import PhysicalResource, Properties, ResourceType, add, refuse_other_properties

_documents = ssm._documents = AccountRegionScopedDict()


def _create(logical_id: str, props: Properties, stack: str) -> PhysicalResource:
    refuse_other_properties(props, "Name", "Content", "DocumentType", "UpdateMethod")
    if props["Name"] in _documents:
        raise ValueError(f"Document with name {props['Name']} already exists")
    return _update(props["Name"], {}, props)


def _update(physical_id: str, old: Properties, new: Properties) -> PhysicalResource:
    content, kind = json.dumps(new["Content"]), new["DocumentType"]
    _documents[physical_id] = {
        "Name": physical_id,
        "Content": content,
        "DocumentType": kind,
        "Status": "Active",
    }
    return physical_id, {}


def _delete(physical_id: str, props: Properties) -> None:
    _documents.pop(physical_id, None)


def apply() -> None:
    """Adds the type."""
    add(
        {
            "AWS::SSM::Document": ResourceType(
                _create, _delete, _update, replacing=("Name", "DocumentType")
            )
        }
    )
