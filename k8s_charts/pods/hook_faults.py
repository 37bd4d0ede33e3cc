"""What a hook must not do to a pod's template: add fields that Kubernetes does not have, which an
API server drops without a word, or take away what the job's own container needs.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

_MODEL = re.compile(r"\bV1[A-Z]\w*(?!\.)\b")
"""A kind in the name of a type, such as list[V1Container]."""


def hook_faults(before: Mapping[str, Any], after: Any, *, pod_list: bool) -> Iterator[str]:
    """Yields a sentence for each fault of `after`, which a hook made of `before`. `pod_list`: the
    pods ask the API server by the right of their account.
    """
    yield from _unknown("V1PodTemplateSpec", after, "")
    own = before["spec"]["containers"][0]
    containers = after.get("spec", {}).get("containers") or ()
    kept = next((c for c in containers if c.get("name") == own["name"]), None)
    if kept is None:
        yield f"spec.containers lacks {own['name']}: the job's own container is needed"
        return
    names = {entry["name"] for entry in kept.get("env") or ()}
    for entry in own.get("env", ()):
        if entry["name"] not in names:
            yield f"container {own['name']} lacks the variable {entry['name']}, which the job sets"
    for source in own.get("envFrom", ()):
        if source not in (kept.get("envFrom") or ()):
            yield f"container {own['name']} lacks envFrom {source}, which has the job's settings"
    account, given = (spec["spec"].get("serviceAccountName") for spec in (before, after))
    if pod_list and account != given:
        yield (
            f"spec.serviceAccountName is {given}: discovery pod-list lets {account} alone list pods"
        )


def _unknown(kind: str, value: Any, path: str) -> Iterator[str]:
    # Imported here: it takes a second, and only charts with a hook need it.
    from kubernetes import client

    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _unknown(kind, entry, f"{path}[{number}]")
    model: Any = getattr(client, kind, None)
    if not isinstance(value, dict) or model is None:
        return
    kinds = {name: (_MODEL.findall(str(of)) or [""])[0] for name, of in _fields(model).items()}
    for name, entry in value.items():
        here = f"{path}.{name}" if path else name
        if name in kinds:
            yield from _unknown(kinds[name], entry, here)
        else:
            nearest = difflib.get_close_matches(name, kinds, 1)
            meant = f": did you mean {nearest[0]}?" if nearest else ""
            yield f"{here} is no field of a pod{meant}"


def _fields(model: Any) -> dict[str, Any]:
    """Returns the types of a kind's fields, by the names that a manifest has."""
    if hasattr(model, "model_fields"):  # From kubernetes 37 on.
        fields = model.model_fields.items()
        return {field.serialization_alias or name: field.annotation for name, field in fields}
    return {name: model.openapi_types[field] for field, name in model.attribute_map.items()}
