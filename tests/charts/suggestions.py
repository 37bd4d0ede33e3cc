"""What a refusal suggests, followed as a user would."""

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

from paddle_settings.errors import SettingError
from paddle_settings.file import value

_EXAMPLE = (
    r"""(?:such as|(?<=must be )like) (?P<example>\[.*?\]|\{.*?\}|.+?(?= \(found)|[^\s,;()]+)"""
)
_SUGGESTION = re.compile(
    rf"(?P<setting>[\w.\[\]-]+) (?:is|must be)\b.*?(?:did you mean (?P<name>[^?]+)|{_EXAMPLE})"
)
_NUMBER = re.compile(r"(?P<setting>[\w.]+) must be(?: at least)? (?P<example>\d[\w.]*)(?P<name>)")


def _follow(settings: Any, sentence: str) -> tuple[str, Any]:
    """Returns how a second refusal would begin, and the changed settings; "" without a suggestion.

    A name that is suggested is a setting; a value that is suggested is not refused again.
    """
    suggestion = _NUMBER.match(sentence) or _SUGGESTION.match(sentence)
    if suggestion is None:
        return "", settings
    setting, name, example = suggestion.group("setting", "name", "example")
    *above, last = re.findall(r"[^.\[\]]+", setting)
    place = changed = copy.deepcopy(settings)
    for step in above:
        place = place[int(step) if isinstance(place, list) else step]
    if name:
        place[name] = place.pop(last)
        return f"{'.'.join([*above, name])} is not a setting", changed
    if isinstance(place, list):
        place[int(last)] = value(example)
        return f"{setting} ", changed
    before, after = place.get(last), value(example)
    if isinstance(before, dict) and isinstance(after, str):  # The group has a name of its own.
        place[after] = place.pop(last)
        return f"{setting} ", changed
    listed = isinstance(before, list) or (last not in place and last.endswith("types"))
    place[last] = [after] if listed and not isinstance(after, list) else after
    return f"{setting} ", changed


def refuse_no_suggestion(
    settings: Any, sentences: Sequence[str], read: Callable[[Any], object]
) -> None:
    """Fails if `read` refuses again what the first refusal of `settings` suggests."""
    for sentence in sentences:
        begins, followed = _follow(settings, sentence)
        if not begins:
            continue
        try:
            read(followed)
        except SettingError as refusal:
            again = [line.rpartition("s.yaml: ")[2] for line in str(refusal).splitlines()]
            assert not [line for line in again if line.startswith(begins)], sentence
