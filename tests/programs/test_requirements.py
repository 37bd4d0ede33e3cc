"""Requirements of real programs, resolved and installed from the package index, beside each Paddle:
about 300 MB.
"""

import os
import subprocess

import pytest

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.images import interpreter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("PROGRAMS"), reason="make test-programs PROGRAMS=/path/to/clones does it"
    ),
]


def job(paddle: str, *requirements: str) -> TrainingJob:
    settings = {
        "name": "a",
        "trainers": 1,
        "paddle": paddle,
        "command": "python train.py",
        "program": {"requirements": list(requirements)},
    }
    return TrainingJob.parse(settings)


@pytest.mark.parametrize(
    ("paddle", "requirements", "program", "says"),
    [
        (
            "2.6",
            ["pyarrow", "numpy<2"],
            "import pip, pyarrow, paddle, numpy; pyarrow.array(numpy.arange(3)).to_numpy(); "
            "print(paddle.__version__, numpy.__version__)",
            "2.6.2 1.26.4",
        ),
        (
            "3.3",
            ["paddleformers==1.2.0", "numpy==1.26.4"],
            "import pip, paddle, numpy; from paddleformers.trainer import Trainer; "
            "print(paddle.__version__, numpy.__version__)",
            "3.3.1 1.26.4",
        ),
    ],
)
def test_they_fit(paddle: str, requirements: list[str], program: str, says: str) -> None:
    python = interpreter.folder(job(paddle, *requirements)) / "python"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == says


def test_a_conflict_is_named() -> None:
    with pytest.raises(BadInput) as refused:
        interpreter.folder(job("3.3", "paddleformers==1.2.0", "numpy==2.4.0"))
    assert "program.requirements needs numpy==2.4.0" in str(refused.value)
    assert "(for paddleformers==1.2.0) needs numpy<=1.26.4" in str(refused.value)
