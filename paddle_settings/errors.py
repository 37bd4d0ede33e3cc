"""The error of every settings reader on bad input: one sentence that names the setting, what was
found and what is allowed.
"""


class SettingError(Exception):
    """A settings file, or a file that it needs, cannot be used; `str()` is the sentence to show."""
