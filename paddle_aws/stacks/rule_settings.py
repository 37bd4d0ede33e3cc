"""The constructs' rules as cluster.yaml's: the same rule, with the settings' names. Imports no
aws_cdk.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import AfterValidator

from constructs_lib.rules import Violation
from paddle_settings.model import Refused


def apply_rule(rule: Callable[[Any], Iterator[Violation]]) -> AfterValidator:
    """Returns a validator of one setting that raises Refused if `rule` refuses its value."""

    def check(value: Any) -> Any:
        for violation in rule(value):
            raise Refused("", violation.value, violation.allowed)
        return value

    return AfterValidator(check)


class _SettingNames(dict[str, str]):
    def __missing__(self, prop: str) -> str:
        return f"{{here}}{prop}"


def translate_violation(violation: Violation, names: Mapping[str, str]) -> Refused:
    """Returns a rule's verdict on settings of one group. `names`: what a setting is called, where
    the rule calls it otherwise.
    """
    here = _SettingNames({prop: f"{{here}}{name}" for prop, name in names.items()})
    prop = names.get(violation.prop, violation.prop)
    return Refused(prop, violation.value, violation.allowed.format_map(here))
