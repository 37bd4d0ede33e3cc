"""What a rehearsal measured has the metric's own name."""

from pathlib import Path

from paddle_node.volume.job_folder import JobFolder

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.jobs.evaluation import Evaluation
from paddle_aws.operations.jobs.progress.training_metrics import Pass
from paddle_aws.rehearsal.summary import Results


def test_a_measurement_has_the_name_of_its_metric(tmp_path: Path) -> None:
    line = (
        '{"pass": 1, "metric": "auc", "value": 0.9, "better": true, "baseline": 0.5, '
        '"baseline_of": "a guess", "records": 7}'
    )
    job = TrainingJob.model_validate({"name": "job", "trainers": 1, "data": {"source": "one.tsv"}})
    passes = [Pass(1, 1, ())]
    results = Results.from_passes(job, JobFolder(tmp_path), passes, Evaluation.parse(line))
    assert results.measured == {"auc": 0.9} and "auc" in results.rows
