"""Whole manifests as a reviewer reads them: any change of output is a change of a file in golden/.

UPDATE_GOLDEN=1 pytest tests/charts/test_golden.py   writes them anew; read the difference before committing it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import write
from k8s_charts.spec import TrainingJob

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
FILES = [PROJECT / "job.yaml", *(HERE / "jobs").glob("*.yaml"), *(PROJECT / "examples").glob("[pt]*/*.yaml")]
CASES = {path.stem: path for path in sorted(FILES)}


OTHER_OUTPUTS = {"instance-profile": {"data_job_credentials": "instance-profile", "region": "eu-central-1"}}
"""What a cluster's outputs say that differs from the other cases'."""


def _manifests(path: Path, outputs: ClusterOutputs, image: str, folder: Path) -> str:
    job = TrainingJob.load(path)
    outputs = outputs.model_copy(update={**OTHER_OUTPUTS.get(path.stem, {})})
    files = write(job, outputs, job.image or image, folder)
    return "".join(f"# {file.name}\n{file.read_text()}" for file in files)


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_the_reviewed_ones(case: str, outputs: ClusterOutputs, image: str, tmp_path: Path) -> None:
    golden = HERE / "golden" / f"{case}.yaml"
    found = _manifests(CASES[case], outputs, image, tmp_path)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(found)
    assert found == golden.read_text(), f"UPDATE_GOLDEN=1 pytest {Path(__file__).name} rewrites {golden}"


@pytest.mark.slow
def test_the_same_job_gives_the_same_bytes_in_another_process(outputs: ClusterOutputs, image: str, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from k8s_charts.documents import write;"
        "from k8s_charts.deployed import ClusterOutputs; from k8s_charts.spec import TrainingJob;"
        f"write(TrainingJob.load(Path({str(PROJECT / 'job.yaml')!r})), {outputs!r}, {image!r}, Path({str(tmp_path / 'two')!r}))"
    )
    # Another hash seed: an order that came from a set would differ.
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    one = {p.name: p.read_bytes() for p in write(TrainingJob.load(PROJECT / "job.yaml"), outputs, image, tmp_path / "one")}
    assert one == {p.name: p.read_bytes() for p in sorted((tmp_path / "two").iterdir())}
