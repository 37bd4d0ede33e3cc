"""What these charts raise on bad input: the error of every reader of settings."""

from settings.errors import SettingError as JobError

__all__ = ["JobError"]
