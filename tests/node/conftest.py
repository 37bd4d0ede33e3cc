import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "operations"))
from api_server import ApiServer
from node_pods import StandIns


@pytest.fixture
def job(tmp_path: Path):
    """Yields a function that makes pods, and leaves none behind."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **more: stack.enter_context(StandIns(tmp_path, *args, **more))


@pytest.fixture
def api():
    """An API server that knows no pods yet."""
    with ApiServer() as server:
        yield server
