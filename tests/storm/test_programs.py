"""A storm tells each pair of tests/storm/programs apart: job.yaml is sound, planted.yaml has the
fault that programs.yaml tells. benchmarks/storm.py runs these and the others. About half a minute
of processor each.
"""

import shutil
from pathlib import Path

import pytest

from tests.storm.conftest import storm_in

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).with_name("programs")
DAILY = "newest_link"
PAIRS = sorted(file.parent.name for file in PROGRAMS.glob("*/planted.yaml"))


@pytest.mark.parametrize("job", ["planted", "job"])
@pytest.mark.parametrize(
    "name",
    [name if name == DAILY else pytest.param(name, marks=pytest.mark.long) for name in PAIRS],
)
def test_a_planted_fault_is_found_and_a_sound_program_is_not_blamed(tmp_path, name, job):
    place = shutil.copytree(PROGRAMS / name, tmp_path / name)
    ended = storm_in(place, "--runs", "2", "--no-shrink", job=f"{job}.yaml")
    assert ended.code == (job == "planted"), ended.output
    assert ended.receipt["state"] == "done"
