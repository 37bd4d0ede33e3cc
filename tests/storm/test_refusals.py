"""Jobs that no storm can run: one sentence, before anything is run or replaced."""

import pytest

from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.rehearsal.__main__ import PROJECT
from paddle_aws.storm.storm import Plan, Storm


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"controller": "paddlejob", "mode": "collective", "command": ["python", "train.py"]},
            "controller is paddlejob: its operator's pods have no agent, which a storm needs to "
            "know each process; use `controller: job`",
        ),
        (
            {
                "runtime": "paddle-0.x",
                "image": "example.com/paddle:0.11",
                "program": {"from": "volume", "folder": "quick_start"},
                "data": {"prepared": True},
            },
            "runtime is paddle-0.x: such a Paddle is in your image alone, and a storm runs what is "
            "on this machine; move the program to Paddle 2.6 (docs/migrate-from-0.x.md)",
        ),
    ],
)
def test_a_job_whose_processes_no_agent_tells_or_whose_paddle_is_elsewhere(settings, sentence):
    source = JobSource.from_job({"name": "job", "trainers": 2, **settings})
    plan = Plan.from_options(1, "", None, 2, shrink=True, fresh=False)
    with pytest.raises(BadInput) as refused:
        Storm(PROJECT, source, plan, print)
    assert str(refused.value) == sentence
