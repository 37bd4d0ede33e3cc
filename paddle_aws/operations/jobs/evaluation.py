"""Measures a trained model on the records that were held out from training, in a Job of one pod."""

import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Self

from pydantic import BaseModel, Field, ValidationError

from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.jobs.objects.job_objects import newest, runs, selector
from paddle_aws.operations.jobs.one_pod import run_one_pod
from paddle_aws.operations.jobs.volume.access import VolumeAccess
from paddle_aws.operations.jobs.volume.saved_passes import saved_passes


class Evaluation(BaseModel, frozen=True):
    """The result that evaluate_pass.py prints as its one line of JSON."""

    number: int = Field(alias="pass")
    metric: str
    value: float
    better: bool
    """Whether the value is better than the baseline."""
    baseline: float
    baseline_of: str
    records: int

    @classmethod
    def parse(cls, log: str) -> Self:
        """Parses what the process wrote, its own line last. Raises Failed."""
        lines = [line for line in log.splitlines() if line.startswith("{")]
        try:
            return cls.model_validate_json(lines[-1] if lines else "")
        except ValidationError:
            no_result = "evaluate_pass.py printed no result: is the image of this version?"
            raise Failed(no_result) from None


def check_program(job: str, settings: Mapping[str, str]) -> None:
    """Raises BadInput for a command. `settings`: as `settings_of` names them."""
    if settings.get("command"):
        raise BadInput(
            f"job {job} runs a command, which measures itself: `evaluate` is for jobs without "
            "`command`; `paddle-aws board` shows the metrics that a command printed"
        )


def measure(
    cluster: ClusterApi, name: str, namespace: str, volume: AbstractContextManager[VolumeAccess]
) -> Evaluation:
    """Runs the evaluation Job; `volume` is not entered yet. Raises BadInput or Failed."""
    from k8s_charts.kinds import evaluation

    training = newest(runs(cluster, namespace, selector(name)), "trainer")
    if training is None:
        raise BadInput(
            f"the cluster has no training Job of {name}, or forgot it "
            "(limits.keep_finished_hours): `paddle-aws resume` creates it again without training "
            "again; the program of a PaddleJob measures itself"
        )
    with volume as there:
        if not any(pass_.complete for pass_ in saved_passes(there, there.files("output"))):
            raise BadInput(f"job {name} has no complete pass: there is nothing to measure yet")
    document = evaluation.evaluation_job(training, f"{name[:40]}-evaluate-{secrets.token_hex(4)}")
    failed = "the trained model could not be measured"
    return Evaluation.parse(run_one_pod(cluster, document, "the evaluation", failed))
