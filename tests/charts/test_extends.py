"""job.yaml that adds to an organization's file, and what that file locks: the same for the
commands, --set and Python.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_settings.errors import SettingError

ORG = """
image: registry.example/trainer:1
passes: 5
resources: {cpu: 2, memory: 4Gi}
pod:
  initContainers:
  - {name: exporter, image: "registry.example/exporter:1", restartPolicy: Always}
locked: [image, pod.initContainers]
"""
JOB = "extends: ../org.yaml\nname: words\ntrainers: 2\ndata: {source: s3://corpus/words}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "org.yaml").write_text(ORG)
    (tmp_path / "team").mkdir()
    (tmp_path / "team/job.yaml").write_text(JOB + "resources: {memory: 8Gi}\n")
    return tmp_path / "team"


def test_an_organizations_sidecar_is_in_each_job(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    jobs = (
        TrainingJob.load(folder / "job.yaml"),
        JobSource(folder / "job.yaml", ("passes=5",)).load(),
        JobSource.from_job(yaml.safe_load((folder / "job.yaml").read_text())).load(),
    )
    for job in jobs:
        assert (job.passes, job.resources.cpu, job.resources.memory) == (5, "2", "8Gi")
        assert "exporter" in str(job.pod)


@pytest.mark.parametrize(
    ("settings", "more", "sentence"),
    [
        ({}, ("image=mine:2",), "--set: image is mine:2: org.yaml has locked image at registry"),
        ({}, ("pod.initContainers+=[a]",), "org.yaml has locked pod.initContainers"),
        ({"image": "mine:2"}, (), "job.yaml: image is mine:2: org.yaml has locked image"),
        ({"locked": ["pases"]}, (), "job.yaml: locked has pases: job.yaml has no such setting"),
        ({"trainers": 0}, (), "job.yaml: trainers must be at least 1 (found 0)"),
        ({"extends": "gone.yaml"}, (), "gone.yaml is missing: name an existing settings file"),
    ],
)
def test_what_is_locked_stays(
    folder: Path, settings: dict[str, Any], more: tuple[str, ...], sentence: str
) -> None:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | settings))
    with pytest.raises(SettingError) as error:
        JobSource(file, more).load()
    assert sentence in str(error.value)
    if not more:
        with pytest.raises(SettingError) as error:
            TrainingJob.load(file)
        assert sentence in str(error.value)


def test_what_a_base_hands_down_and_does_not_count_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "org.yaml").write_text("checkpoint_minutes: 5\nlimits: {attempts: 7}\n")
    (tmp_path / "train.py").touch()
    (tmp_path / "README").write_text("mine")
    own = "extends: org.yaml\nname: words\ntrainers: 2\ncommand: python train.py\n"
    (tmp_path / "job.yaml").write_text(own)
    assert TrainingJob.load(tmp_path / "job.yaml").limits.attempts == 7
    (tmp_path / "job.yaml").write_text(f"{own}checkpoint_minutes: 1\n")
    with pytest.raises(SettingError, match=r"^job.yaml: checkpoint_minutes is 1: it counts only"):
        TrainingJob.load(tmp_path / "job.yaml")
