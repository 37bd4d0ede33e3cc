import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from training_job import TrainingJob


@pytest.fixture
def training_job(tmp_path: Path):
    """Makes jobs, and leaves no process of them."""
    made: list[TrainingJob] = []

    def make(*args, **kwargs) -> TrainingJob:
        job = TrainingJob(tmp_path, *args, **kwargs)
        made.append(job)
        return job

    yield make
    for job in made:
        job.end()
