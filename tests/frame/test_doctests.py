"""The examples in docstrings are right; tests/aws has those of constructs, which need a stack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
ROOMS = ("k8s_charts", "paddle_aws", "paddle_settings", "trainer_image")
IMAGE_PYTHON = PROJECT / ".venv-image/bin/python"
CHECK = """
import doctest, importlib, sys
for name in sys.argv[1:]:
    print(name, doctest.testmod(importlib.import_module(name)).failed)
"""


@pytest.mark.parametrize("paddle", [False, True])
def test_examples(paddle: bool) -> None:
    """Those of `paddle_node.fleet` need Paddle."""
    files = [file for room in ROOMS for file in sorted((PROJECT / room).rglob("*.py"))]
    names = [
        ".".join(file.relative_to(PROJECT).with_suffix("").parts).removeprefix("trainer_image.")
        for file in files
        if ">>> " in file.read_text()
    ]
    names = [name for name in names if name.startswith("paddle_node.training") == paddle]
    done = subprocess.run(
        [IMAGE_PYTHON if paddle else sys.executable, "-c", CHECK, *names],
        env=os.environ | {"PYTHONPATH": f"{PROJECT}:{PROJECT}/trainer_image"},
        capture_output=True,
        text=True,
    )
    assert names and done.stdout == "".join(f"{name} 0\n" for name in names), done
