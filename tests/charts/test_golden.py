"""Whole manifests as a reviewer reads them: any change of output is a change of a file in golden/.

UPDATE_GOLDEN=1 pytest tests/charts/test_golden.py   writes them anew; read the difference before committing it.
"""

import os
from pathlib import Path

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import write
from k8s_charts.spec import TrainingJob

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
FILES = [PROJECT / "job.yaml", *(HERE / "jobs").glob("*.yaml"), *(PROJECT / "examples").glob("[pt]*/*.yaml")]
CASES = {path.stem: path for path in sorted(FILES)}


IMAGE = "000000000000.dkr.ecr.eu-central-1.amazonaws.com/paddle@sha256:" + "ab" * 32
OTHER_OUTPUTS = {"instance-profile": {"data_job_credentials": "instance-profile", "region": "eu-central-1"}}
"""What a cluster's outputs say that differs from the other cases'."""


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_the_reviewed_ones(case: str, outputs: ClusterOutputs, tmp_path: Path) -> None:
    golden, job = HERE / "golden" / f"{case}.yaml", TrainingJob.load(CASES[case])
    outputs = outputs.model_copy(update=OTHER_OUTPUTS.get(case, {}))
    files = write(job, outputs, job.image or IMAGE, tmp_path)
    found = "".join(f"# {file.name}\n{file.read_text()}" for file in files)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(found)
    assert found == golden.read_text(), f"UPDATE_GOLDEN=1 pytest {Path(__file__).name} rewrites {golden}"
