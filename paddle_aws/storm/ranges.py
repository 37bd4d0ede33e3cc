"""What a value may be if some runs had it between a least and a greatest."""

from collections.abc import Sequence
from math import inf, isnan

_SPREADS = 4.0
"""By how many times the calm runs' spread a value may lie outside that spread."""
_SHARE = 0.1
"""And by which share of the value, if calm runs differ, because two runs show little of a
spread.
"""


def range_of(values: Sequence[float]) -> tuple[float, float]:
    """Returns the least and the greatest: all numbers, if only some of the values are none."""
    if any(map(isnan, values)):
        return (values[0], values[0]) if all(map(isnan, values)) else (-inf, inf)
    return min(values), max(values)


def same(value: float, other: float) -> bool:
    """Whether two values are equal; a NaN equals another."""
    return value == other or (isnan(value) and isnan(other))


def fits(value: float, between: tuple[float, float], spread: float) -> bool:
    """Whether a value is as those `between` which others lie, which differ by at most `spread`."""
    least, most = between
    if same(value, least) or same(value, most) or between == (-inf, inf):
        return True
    if spread == 0 and same(least, most):
        return False
    slack = max(_SPREADS * spread, _SHARE * max(abs(least), abs(most)))
    return least - slack <= value <= most + slack


def describe(least: float, most: float) -> str:
    """Returns a range in words, or its only value."""
    return f"{least:g}" if same(least, most) else f"{least:g} to {most:g}"
