"""Addresses as messages may repeat them: without user, password and query, each of which may be a
secret.
"""

import re

_WITH_PASSWORD = re.compile(r"([a-z][a-z0-9+.-]*:/+)[^/?#\s]*:.*@.*", re.IGNORECASE | re.DOTALL)
_WITH_USER = re.compile(r"([a-z][a-z0-9+.-]*:/+)[^/?#\s]*@", re.IGNORECASE)
_WITH_QUERY = re.compile(r"([a-z][a-z0-9+.-]*:/[^?#]*)[?#].*", re.IGNORECASE | re.DOTALL)


def hide_secrets(text: str) -> str:
    """Returns `text`, a user's value, with `...` in place of any part of an address that may be
    secret.

    It hides too much rather than too little: a password may contain any character that should end
    it, so nothing after a password is shown.

    >>> hide_secrets("https://ada:secret@example.com/a.tsv")
    'https://...'
    >>> hide_secrets("https://example.com/a.tsv?token=secret")
    'https://example.com/a.tsv?...'
    """
    text = _WITH_PASSWORD.sub(r"\1...", text)
    return _WITH_QUERY.sub(r"\1?...", _WITH_USER.sub(r"\1...@", text))
