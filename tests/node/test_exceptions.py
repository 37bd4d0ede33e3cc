"""The exception that ended a worker, as the worker's output shows it."""

from pathlib import Path

import pytest
import yaml
from paddle_node.agent.output import Exceptions


@pytest.mark.parametrize(
    "case", yaml.safe_load(Path(__file__).with_name("exceptions.yaml").read_text())
)
def test_the_last_exception_is_named_with_the_programs_own_line(case):
    exceptions = Exceptions()
    for line in case["wrote"].splitlines():
        exceptions.read(line)
    assert exceptions.last == case["named"]
