"""job.yaml as a typed value. `TrainingJob` is the entry point; only k8s_charts reads the other
modules. Imports no cdk8s.
"""

from k8s_charts.spec.job import TrainingJob

__all__ = ["TrainingJob"]
