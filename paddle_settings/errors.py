"""The error of every settings reader on bad input: one sentence that names the setting, what was
found and what is allowed.
"""

import re

ORDERS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""What a terminal takes for an order: control characters, changes of the direction of writing."""


class SettingError(Exception):
    """A settings file, or a file that it needs, cannot be used; `str()` is the sentence to show."""


def visible(text: str) -> str:
    """Returns a text with ORDERS as escapes: files, logs and clusters may hold any."""
    return re.sub(ORDERS, lambda order: ascii(order[0])[1:-1], text)
