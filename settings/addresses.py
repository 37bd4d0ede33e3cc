"""An address as a sentence may repeat it: without a user, a password and a query, each of which may be a secret."""

import re

_WITH_PASSWORD = re.compile(r"([a-z][a-z0-9+.-]*:/+)[^/?#\s]*:.*@.*", re.IGNORECASE | re.DOTALL)
_WITH_USER = re.compile(r"([a-z][a-z0-9+.-]*:/+)[^/?#\s]*@", re.IGNORECASE)
_WITH_QUERY = re.compile(r"([a-z][a-z0-9+.-]*:/[^?#]*)[?#].*", re.IGNORECASE | re.DOTALL)


def without_secrets(text: str) -> str:
    """`text`, a value that a user gave, with `...` in place of what an address in it may keep secret.

    Rather too much than too little: a password may hold every sign that should end it, so behind one nothing is shown.
    """
    text = _WITH_PASSWORD.sub(r"\1...", text)
    return _WITH_QUERY.sub(r"\1?...", _WITH_USER.sub(r"\1...@", text))
