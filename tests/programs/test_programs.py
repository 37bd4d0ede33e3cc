"""Other people's programs, unmodified, in two pods: to their end, and again with a trainer killed
after the first checkpoint.

`make test-programs PROGRAMS=/path/to/clones` runs them; the folder has the clones that
programs.yaml names. Each job.yaml says how its program starts; its packages come from PyPI, once.
The agents, the archive and Paddle are real; only the data is put on the volume by hand: small, made
here, the same for both pods. All six took twenty minutes on two cores with a load of twenty.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from k8s_charts.kinds import training_job
from k8s_charts.spec import TrainingJob as Job
from paddle_aws.operations.images import interpreter

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "fleet"))
from training_job import TrainingJob  # noqa: E402

CLONES = os.environ.get("PROGRAMS", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CLONES, reason="make test-programs PROGRAMS=/path/to/clones runs these"),
]


PROGRAMS = yaml.safe_load((HERE / "programs.yaml").read_text())


class ForeignJob(TrainingJob):
    """Pods with the job file's own settings and the Python environment that its requirements
    make.
    """

    def __init__(self, place: Path, job: Job) -> None:
        python = interpreter.folder(job, PROJECT)
        super().__init__(place, job.program.name, job.trainers, binaries=python)
        self.job = job
        archive = self.folder.archive(job.program.archive.digest)
        archive.parent.mkdir(parents=True)
        job.program.archive.write(archive)
        self.home = place / "home"
        self.home.mkdir()
        first, *others = (self.folder.shard(pod) for pod in range(job.trainers))
        first.mkdir(parents=True)
        maker = [
            python / "python",
            HERE / job.name / "make_data.py",
            first,
            job.program.archive.root,
        ]
        subprocess.run(maker, env=self.environment(0), check=True, timeout=300)
        for other in others:
            shutil.copytree(first, other)

    def try_(self) -> None:
        """Tries the program as a user does first: its imports, then a few steps of it."""
        file = HERE / self.job.name / "job.yaml"
        folder = f"program.path={self.job.program.archive.root}"
        words = [Path(sys.executable).with_name("paddle-aws"), "try", file, "--set", folder]
        runs = ["--run", "--time-limit", "120", "--steps", "1", "--data", self.folder.shard(0)]
        for more in [[], runs][: 1 + self.job.way.launches]:
            done = subprocess.run([*words, *more], capture_output=True, text=True, timeout=400)
            assert done.returncode == 0, done.stdout[-5000:] + done.stderr

    def environment(self, index: int, **more: str) -> dict[str, str]:
        variables = {
            "HOME": str(self.home),
            "PADDLE_NODE_PROGRAM_ARCHIVE": self.job.program.archive.digest,
        }
        return super().environment(index, **more) | training_job.settings(self.job) | variables


@pytest.fixture(params=PROGRAMS)
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ForeignJob, dict]]:
    """Yields a program's job and the result that is expected of it."""
    expected = PROGRAMS[request.param]
    clone = Path(CLONES) / expected["clone"]
    if not clone.is_dir():
        pytest.skip(f"{clone} is not there")
    commit = subprocess.run(
        ["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if commit != expected["commit"]:
        print(f"{clone} is at {commit}: {expected['commit']} was tried")
    settings = yaml.safe_load((HERE / request.param / "job.yaml").read_text())
    with ForeignJob(tmp_path, Job.parse(settings, Path(CLONES))) as job:
        yield job, expected


@pytest.mark.parametrize("killed", [False, True])
def test_it_trains_to_its_end_also_where_a_trainer_is_killed(
    foreign: tuple[ForeignJob, dict], killed: bool
) -> None:
    job, expected = foreign
    if not killed:
        job.try_()
    job.start()
    if killed:
        glob = job.job.progress or next(
            iter(re.findall(r"\{newest(?:_stem)?:(.*?)\}", " ".join(job.job.resume)))
        )
        job.wait_until(lambda: any(job.folder.root.glob(glob)), 600)
        os.kill(job.child(1, "trainer"), signal.SIGKILL)
    assert job.codes() == [0, 0], job.logs()
    log = job.log(0)
    starts = re.findall(r"training starts (.*)", log)
    assert (
        len(starts) == 1 + killed and ("ends: trainer 1 ended with 137 (SIGKILL)" in log) == killed
    ), log
    assert not killed or expected["resumes"] in starts[1], starts
    values = re.findall(expected["metric"], job.folder.train_log(0).read_text(errors="replace"))
    assert values, job.logs()
    print(f"{job.job.name}: {values[-1]}")
    assert expected["good"][0] < float(values[-1]) <= expected["good"][1], values
