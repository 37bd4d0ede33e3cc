"""Tests on NFS: they run only inside the small machine that `make test-nfs` boots (see `init`
beside this file).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

# The tests import each other's helper by name, which importlib mode does not allow on its own.
sys.path.insert(0, str(Path(__file__).parent))
sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("data", "node")]

from nfs_machine import Volume

collect_ignore_glob = [] if os.environ.get("TEST_NFS") == "yes" else ["test_*.py"]


@pytest.fixture
def volume(request: pytest.FixtureRequest) -> Volume:
    name = re.sub(r"\W", "-", request.node.name)[:100]
    (Path("/run/served") / name).mkdir()
    return Volume(name)
