"""Labels of a job's objects and pods."""

from enum import StrEnum


class Label(StrEnum):
    """Labels of a job's objects and pods."""

    # Kubernetes' recommended ones, set by the charts.
    NAME = "app.kubernetes.io/name"
    """What an object belongs to by itself: `PROJECT`, or a program of others, such as a driver."""
    PART_OF = "app.kubernetes.io/part-of"
    """Always `PROJECT`."""
    MANAGED_BY = "app.kubernetes.io/managed-by"
    """Always `PROJECT`."""
    INSTANCE = "app.kubernetes.io/instance"
    """The job's name."""
    COMPONENT = "app.kubernetes.io/component"
    """The pod's role."""

    # Set by the Job controller.
    JOB_NAME = "batch.kubernetes.io/job-name"
    RUN_ID = "batch.kubernetes.io/controller-uid"
    INDEX = "batch.kubernetes.io/job-completion-index"


PROJECT = "paddle-aws"
