"""Names, and rules of names, on which stacks and charts have to agree."""

NAMESPACE = "paddle"
"""Default namespace of jobs."""
DATA_ACCOUNT = "paddle-data"
"""Service account of the data job. Pod identity binds the right to read sources to this account, so
the data jobs of all jobs use the same name. Trainers use another account, and have no rights in
AWS.
"""
_WORD = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*"
_REGISTRY = "(?:[a-zA-Z0-9](?:[-a-zA-Z0-9.]*[a-zA-Z0-9])?(?::[0-9]{1,5})?/)?"
_ENDING = "(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
IMAGE = f"{_REGISTRY}{_WORD}(?:/{_WORD})*{_ENDING}"
"""An image's name, as the container runtime reads it: [registry[:port]/]repository[:tag][@digest].
"""
