import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from training_job import TrainingJob


@pytest.fixture
def training_job(tmp_path: Path):
    """Yields a function that makes jobs, and leaves none of their processes behind."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **more: stack.enter_context(TrainingJob(tmp_path, *args, **more))
