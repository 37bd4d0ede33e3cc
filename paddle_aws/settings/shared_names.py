"""Names that stacks and charts have to agree on before anything is deployed."""

NAMESPACE = "paddle"
"""Default namespace of jobs."""
DATA_ACCOUNT = "paddle-data"
"""Service account of the data job. Pod identity binds the right to read sources to it, so all jobs
use the same name, and trainers, which have another, have no rights in AWS.
"""
