"""Refuses bad input of a construct at synth, in one sentence with its path, the property, the value
and what is allowed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from aws_cdk import Token

from constructs_lib.addresses import Clients
from constructs_lib.rules import Rule, Text, Violation, refuse_text

T = TypeVar("T")


def is_token(value: Any) -> bool:
    """Returns whether only the deploy knows `value`."""
    # Numbers that are tokens are floats. jsii is asked only where it could say yes: a call takes as
    # long as a thousand of these lines.
    if isinstance(value, str):
        return "Token[" in value and Token.is_unresolved(value)
    if isinstance(value, Sequence):
        return any(isinstance(item, str) and item.startswith("#{Token[") for item in value)
    return isinstance(value, float) and Token.is_unresolved(value)


def drop_token(value: T) -> T | None:
    """Returns `value`; None if it is a token, whose value only the deploy knows."""
    return None if is_token(value) else value


def drop_tokens(values: Sequence[T]) -> Sequence[T]:
    """Returns those of `values` that are no tokens. Text stays text, for a rule to refuse."""
    if isinstance(values, str):
        return cast(Sequence[T], values)
    return [] if is_token(values) else [value for value in values if not is_token(value)]


def check(**values: tuple[Rule, Any]) -> Iterator[Violation]:
    """Yields the violations of properties, each given as its rule and its value. No rule judges a
    token, nor those in a list of ranges; a token in place of that list is text, which it refuses.
    """
    for prop, (rule, value) in values.items():
        judged = drop_tokens(value) if isinstance(rule, Clients) else drop_token(value)
        yield from rule(prop, judged)


def check_list(prop: str, rule: Text, values: Sequence[str]) -> Iterator[Violation]:
    """Yields the violations of a list whose entries `rule` judges."""
    yield from refuse_text(prop, values, rule.example)
    if not isinstance(values, str):
        for value in drop_tokens(values):
            yield from rule(prop, value)


class _Props(dict[str, str]):
    def __missing__(self, prop: str) -> str:
        head, dot, tail = prop.partition(".")
        return f"{self[head]}{dot}{tail}" if dot else prop


def refuse(
    path: str, violations: Iterable[Violation], names: Mapping[str, str] | None = None
) -> None:
    """Raises ValueError, a sentence for each of `violations`, if there are any.

    Args:
        path: the construct's.
        names: what the construct calls a rule's property, where it has another name for it.
    """
    props = _Props(names or {})
    sentences = [
        f"{path}: {props[prop]} is {_format(value)}: {allowed.format_map(props)}"
        for prop, value, allowed in violations
    ]
    if sentences:
        raise ValueError("\n".join(sentences))


def merge_options(
    path: str, decided: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the props of a construct's base: what the construct decides, and what goes through.
    Raises ValueError, a sentence for each option that it decides itself.
    """
    construct = path.rpartition("/")[2]
    allowed = f"{construct} decides it: leave it out, or use the CDK's own construct"
    refuse(path, [Violation(name, options[name], allowed) for name in options if name in decided])
    return {**decided, **options}


def _format(value: Any) -> str:
    if value is None or value == "":
        return "empty"
    return str(value).lower() if isinstance(value, bool) else str(value)
