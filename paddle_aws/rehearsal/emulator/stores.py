"""The inventory of the emulator: everything that exists in it, in all its services.

MiniStack keeps what exists in account-scoped stores. Every such store of every service counts,
unless stores.json lists it, with the reason. So the inventory covers services, too, that no stack
uses yet.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ministack.app import _get_module, _registry_module_names
from ministack.core.responses import AccountRegionScopedDict, AccountScopedDict, request_scope

ACCOUNT = "000000000000"

_LISTS = json.loads(Path(__file__).with_name("stores.json").read_text())
NOT_RESOURCES: Mapping[str, str] = _LISTS["not resources"]
"""Stores that hold no resources of their own, and why."""
PARTS: Mapping[str, str] = _LISTS["parts"]
"""Stores of settings, each with the store of their owners: settings count as leftovers once their
owner is gone.
"""
NAMES: Mapping[str, str] = _LISTS["names"]
"""Services by module, where the two names differ."""
GONE: Mapping[tuple[str, str], Callable[[Any], bool]] = {
    ("cloudformation", "_stacks"): lambda stack: stack.get("StackStatus") == "DELETE_COMPLETE",
    ("ec2", "_nat_gateways"): lambda gateway: gateway.get("State") == "deleted",
    ("ec2", "_instances"): lambda instance: instance.get("State", {}).get("Name") == "terminated",
    ("kms", "_keys"): lambda key: key.get("KeyState") == "PendingDeletion",
}
"""By store: whether a record is of a deleted resource, which AWS still shows for a while."""

STAGING = re.compile(r"cdk-[^-]+-assets-")
"""cdk's bootstrap bucket: the templates that cdk uploaded stay in it after a destroy (`cdk gc`
removes them).
"""


def resources() -> list[tuple[str, str, str]]:
    """Returns (service, kind, identifier) of everything that exists now."""
    region = os.environ["MINISTACK_REGION"]
    for name in _registry_module_names():
        _get_module(name)
    with request_scope(ACCOUNT, region):
        # The first request creates the account's default VPC and event bus, which are no leftovers.
        sys.modules["ministack.services.ec2"]._ensure_defaults_initialized()  # type: ignore[attr-defined]
        sys.modules["ministack.services.eventbridge"]._ensure_default_bus()  # type: ignore[attr-defined]
    rows = []
    for full_name, module in sorted(sys.modules.items()):
        prefix, _, rest = full_name.partition("ministack.services.")
        if prefix or not rest or module is None:
            continue
        service = rest.partition(".")[0]
        for attribute, store in sorted(vars(module).items()):
            # Tags cannot exist without their resource, which itself counts.
            ignored = f"{service}.{attribute}" in NOT_RESOURCES or attribute.endswith("_tags")
            if isinstance(store, (AccountScopedDict, AccountRegionScopedDict)) and not ignored:
                rows += [
                    (NAMES.get(service, service), _kind(attribute), _identifier(key, region))
                    for key, value in list(store._data.items())
                    if _exists(service, attribute, key, value)
                    and not _is_part(service, attribute, key, module)
                ]
    return sorted(set(rows))


def _exists(service: str, attribute: str, key: Any, value: Any) -> bool:
    gone = GONE.get((service, attribute))
    if gone is not None and gone(value):
        return False
    if service == "s3" and isinstance(key[-1], tuple):
        return bool(value) and not STAGING.match(str(key[-1][0]))
    return True


def _is_part(service: str, attribute: str, key: Any, module: Any) -> bool:
    of_bucket = service == "s3" and attribute.startswith("_bucket_")
    whole = "_buckets" if of_bucket else PARTS.get(f"{service}.{attribute}")
    return whole is not None and key in getattr(module, whole)._data


def _kind(attribute: str) -> str:
    words = attribute.strip("_").replace("_", " ")
    if words.endswith("sses"):
        return words[:-2]
    if words.endswith("ies"):
        return words[:-3] + "y"
    return words[:-1] if words.endswith("s") and not words.endswith("ss") else words


def _identifier(key: tuple[Any, ...], region: str) -> str:
    last = key[-1]
    text = "/".join(map(str, last)) if isinstance(last, tuple) else str(last)
    text = text.replace("\x00", "/")
    elsewhere = f" ({key[1]})" if len(key) == 3 and key[1] not in (region, "") else ""
    return text + elsewhere
