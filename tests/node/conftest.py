import itertools
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from api_server import ApiServer
from node_pods import Pods

_addresses = itertools.count()


@pytest.fixture
def job(tmp_path: Path):
    """Makes pods, and leaves none."""
    made: list[Pods] = []

    def make(*args, **kwargs) -> Pods:
        pods = Pods(tmp_path, *args, **kwargs)
        made.append(pods)
        return pods

    yield make
    for pods in made:
        pods.end()


@pytest.fixture
def worker_address() -> str:
    """A loopback address that no other test of this machine uses."""
    return f"127.{220 + os.getpid() % 20}.{os.getpid() // 20 % 250 + 1}.{next(_addresses) % 250 + 1}"


@pytest.fixture
def api():
    """An API server that knows no pods yet."""
    server = ApiServer()
    yield server
    server.close()
