"""Which settings of a job exclude or need each other: the table rules.yaml, which explains its own
format.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from paddle_aws.settings.model import Settings, shown


@cache
def _rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text())
    return found


def faults(job: Settings) -> Iterator[str]:
    """Yields the sentences of the rules that a job breaks."""
    for rule in _rules():
        for each in rule.get("each", [""]):
            if all(
                _holds(job, path.replace("each", each), wanted)
                for path, wanted in rule["where"].items()
            ):
                said = {
                    "each": each,
                    "last": each.rpartition(".")[2],
                    "value": each and shown(_value(job, each)),
                }
                yield rule["say"].format(**dict(job) | said)


def _holds(job: Settings, path: str, wanted: Any) -> bool:
    value = _value(job, path)
    if wanted == "given":
        group, _, name = path.rpartition(".")
        holder = _value(job, group)
        return holder is not None and name in holder.model_fields_set
    if wanted == "some":
        return bool(value)
    if isinstance(wanted, list):
        return value in wanted
    ((how, what),) = wanted.items()
    if how == "like":
        return re.fullmatch(what, value or "", re.DOTALL) is not None
    return value not in ([None, _value(job, what)] if how == "besides" else what)


def _value(job: Any, path: str) -> Any:
    """Returns the setting at `path`; None also if its group is missing."""
    for name in filter(None, path.split(".")):
        job = getattr(job, name, None)
    return job
