"""A volume that fills up while a pass is saved. Real Paddle on a real tmpfs of 8 MB: about 25 s."""

import contextlib
import re
import subprocess
import time
from pathlib import Path

import pytest
from paddle_node.volume import passes

pytestmark = pytest.mark.slow


@pytest.fixture
def small_volume(tmp_path):
    """The folder that TrainingJob uses as its volume."""
    volume = tmp_path / "volume"
    volume.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", volume], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield volume
    subprocess.run(["umount", "-l", volume], check=True)


def fill(volume: Path, spare: int) -> Path:
    """Fills the volume with another job's file, except for `spare` bytes. Returns the file."""
    filler = volume / "another-job"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with filler.open("rb+") as file:
        file.truncate(filler.stat().st_size - spare)
    return filler


@pytest.mark.long
def test_the_pass_before_is_intact_and_the_job_says_why_it_ended_and_goes_on_when_there_is_room(
    training_job, small_volume
):
    job = training_job(pods=2, PASSES="3", ATTEMPTS="2", CHECKPOINT="1")
    job.hold_at_record(1000)  # In the middle of the second pass.
    job.split(job.make_sample("--lines", "1500"))
    job.start()
    job.wait_until_held()
    size = sum(file.stat().st_size for file in job.folder.pass_dir(0).rglob("*") if file.is_file())
    filler = fill(small_volume, size // 2)
    time.sleep(1)  # A checkpoint is due.
    job.release()
    job.end_with(74, 70)
    first, second = map(job.log, range(2))
    assert re.search(
        r"pass-00001 was not saved whole, the volume is full|the disk is full: .*the volume at "
        r"/volume",
        first,
    ), first
    said = job.folder.train_log(0).read_text(errors="replace")
    assert re.search(
        r"no checkpoint in pass 1 at step \d+, training continues: .*(volume is full|No space "
        r"left)",
        said,
    ), said
    # Attempt 1 saved pass 0, the two after it saved nothing.
    why = (
        "2 attempts ended without progress: attempt 2: .*74 .VOLUME_FULL.*; attempt 3: .*74 "
        ".VOLUME_FULL."
    )
    for said in (first, second):
        assert re.search(why, said), said
        assert "Traceback" not in said and "cannot be recorded" not in said
    # Half-saved files take no room from the records that must still be written.
    assert [one.name for one in passes.read_newest_first(job.folder)] == [
        "attempts/run-1/pass-00000"
    ]
    assert not list(job.folder.output.glob("attempts/*/pass-00001/*.gz"))
    passes.verify(job.folder.pass_dir(0))
    before = job.folder.done(0).read_bytes()

    filler.unlink()
    job.run(RUN_ID="the-next", CHECKPOINT="3600")
    assert job.folder.done(0).read_bytes() == before
    assert [m["pass"] for m in job.metrics(0)] == [0, 1, 2]
    assert job.judged()["pass"] == 2
