"""The exception behind a worker's end, as its output tells it."""

import subprocess
import sys

import pytest
from paddle_node.agent.output import Exceptions


def last(text: str) -> str:
    exceptions = Exceptions()
    for line in text.splitlines():
        exceptions.read(line)
    return exceptions.last


def test_the_last_traceback_is_named_with_the_programs_own_line():
    text = """epoch 1
Traceback (most recent call last):
  File "/home/jobpath/job/quick_start/train.py", line 12, in <module>
    main()
  File "/opt/venv/lib/python3.11/site-packages/paddle/nn/layer.py", line 99, in forward
    raise ValueError("(InvalidArgument) shapes differ")
ValueError: (InvalidArgument) shapes differ
  [Hint: expected 2]
during handling
"""
    assert last(text) == "ValueError: (InvalidArgument) shapes differ (train.py:12)"


@pytest.mark.parametrize(("program", "exception"), [
    ("x = 1\nif x\n", "SyntaxError: expected ':' (train.py:2)"),
    ("import traceback; traceback.print_stack(); print('loss: 0.3')", ""),
    (None, "python: can't open file '{}': [Errno 2] No such file or directory"),
])  # fmt: skip
def test_a_program_that_never_begins_is_named_too(tmp_path, program, exception):
    path = tmp_path / "train.py"
    if program is not None:
        path.write_text(program)
    said = subprocess.run(
        ["python", path], executable=sys.executable, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert last(said.stdout) == exception.format(path)
    module = subprocess.run([sys.executable, "-m", "no_such.main"], stderr=subprocess.PIPE, text=True).stderr
    assert last(module).startswith("python: Error while finding module specification for 'no_such.main' (ModuleNotFoundError")
