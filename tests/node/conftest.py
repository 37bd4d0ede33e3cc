import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from api_server import ApiServer
from node_pods import Pods


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
def api():
    """An API server that knows no pods yet."""
    server = ApiServer()
    yield server
    server.close()
