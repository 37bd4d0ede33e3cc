"""Names that stacks and charts have to agree on before anything is deployed."""

NAMESPACE = "paddle"
"""Default namespace of jobs."""
DATA_ACCOUNT = "paddle-data"
"""Service account of the data job. Pod identity binds the right to read sources to this account, so
the data jobs of all jobs use the same name. Trainers use another account, and have no rights in
AWS.
"""
