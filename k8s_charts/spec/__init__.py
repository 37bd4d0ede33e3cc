"""job.yaml as a typed value. `TrainingJob` is the way in; only k8s_charts reads the modules behind it. Imports no cdk8s."""

from k8s_charts.spec.job import TrainingJob

__all__ = ["TrainingJob"]
