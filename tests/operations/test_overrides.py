"""`--set` overrides a job file's settings, in the commands and from Python."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run

import paddle_aws
from paddle_aws.operations.jobs import rehearsal_run
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_settings import overrides
from paddle_settings.errors import SettingError

CASES = yaml.safe_load(Path(__file__).with_name("overrides.yaml").read_text())


@pytest.mark.parametrize(("settings", "given", "result"), CASES["results"], ids=str)
def test_a_setting_is_set_or_appended_to(settings: dict, given: list[str], result: dict) -> None:
    before = repr(settings)
    assert overrides.apply(settings, given) == result and repr(settings) == before


@pytest.mark.parametrize(("settings", "given", "says"), CASES["refused"], ids=str)
def test_what_cannot_be_set(settings: dict, given: str, says: str) -> None:
    with pytest.raises(SettingError) as caught:
        overrides.apply(settings, [given])
    assert re.fullmatch(says, str(caught.value))


def test_a_mapping_is_a_job_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/train.py").write_text("print('# x: 1')\n")
    settings: dict[str, Any] = {
        "name": "words",
        "trainers": 2,
        "program": {"folder": "./mine"},
        "command": "python train.py --text 'a: b # c'",
        "data": {"source": "s3://a/b"},
        "environment": {"A": "1", "B": "true"},
    }
    job = JobSource.from_job(settings).load()
    Path("job.yaml").write_text(yaml.safe_dump(settings))
    assert job.model_dump() == JobSource.from_job("job.yaml").load().model_dump()
    assert JobSource.from_job("job.yaml", ["trainers=3"]).load().trainers == 3
    with pytest.raises(SettingError, match="cannot be written as YAML"):
        JobSource.from_job({"name": object()})
    with pytest.raises(paddle_aws.BadInput, match="trainers must be at least 1"):
        paddle_aws.try_(settings | {"trainers": 0})
    with pytest.raises(paddle_aws.BadInput, match="trainers must be at least 1"):
        paddle_aws.submit(settings | {"trainers": 0})


def test_each_command_takes_overrides(run: Run, folder: Path) -> None:
    for command in ("try", "manifests", "submit", "resume"):
        done = run(command, "--set", "trainers=0")
        assert done.code == 2 and "trainers must be at least 1" in done.err, (command, done.err)
    # It takes this process's place.
    job = JobSource.from_job({"name": "words", "trainers": 0})
    words = job.command(*rehearsal_run.REHEARSE, volume="new", outputs="outputs.json")
    rehearsed = subprocess.run(words, capture_output=True, text=True)
    assert rehearsed.returncode == 2 and "trainers must be at least 1" in rehearsed.stderr
