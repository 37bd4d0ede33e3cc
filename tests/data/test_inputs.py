"""The inputs of a job: brought by its data job, one verified copy of each content on the volume."""

import io
import json
import os
import zipfile
from pathlib import Path

import pytest
from job_folder import Job, tar
from paddle_node.failure import Failure
from paddle_node.staging import preparation

DONE = {"run": {"code": 0, "sentence": "every process ended with 0: the job is done"}}
FAILED = {"run": {"code": 70, "sentence": "3 attempts ended without progress"}}


class Jobs:
    """Jobs of one volume, none of which has data."""

    def __init__(self, folder: Path) -> None:
        self.volume = folder / "volume"

    def bring(self, job: str = "later", **inputs: object) -> dict[str, Path]:
        """Runs the data job of `job`, and returns what a trainer of it gets."""
        given = {name: str(address) for name, address in inputs.items()}
        work = Job(self.volume / job)
        settings = {"PADDLE_NODE_INPUTS": json.dumps(given), "JOB_PATH": self.volume}
        work.split("", POD_UID=os.urandom(4).hex(), **settings)
        node = preparation.prepare(work.trainer(PADDLE_NODE_RUNTIME="collective"), print)
        return dict(node.folder.inputs)

    def refused(self, code: int, sentence: str, **inputs: object) -> None:
        with pytest.raises(Failure, match=sentence) as caught:
            self.bring(**inputs)
        assert caught.value.code == code

    def copies(self) -> list[str]:
        entries = (self.volume / "shared/inputs").iterdir()
        return sorted(entry.name for entry in entries if entry.name != "sources")

    def earlier(self, outcomes: dict[str, object] | None, **files: str) -> Path:
        """Writes what a run of `earlier` left; returns its output."""
        output = self.volume / "earlier/output"
        (output / "run").mkdir(parents=True, exist_ok=True)
        attempt = {"number": 1, "run": "run", "started": 1.0, "cause": "the job is done"}
        record = {"attempts": [attempt], "outcomes": outcomes or {}}
        (output / "run/attempts.json").write_text(json.dumps(record))
        (output / "node_0").mkdir(exist_ok=True)
        (output / "node_0/train.log").write_text("loss 0.1")
        for name, text in files.items():
            (output / name.replace("__", ".")).write_text(text)
        return output


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def test_one_copy_of_a_content_that_nobody_writes_and_a_damaged_one_is_refused(
    jobs: Jobs, tmp_path: Path
) -> None:
    (tmp_path / "a.pdparams").write_bytes(b"weights")
    first = jobs.bring("first", weights=tmp_path / "a.pdparams")["weights"]
    assert (first.name, first.read_bytes()) == ("a.pdparams", b"weights")
    assert first.stat().st_mode & 0o222 == 0
    os.utime(tmp_path / "a.pdparams", (1, 1))  # Another mark, the same content.
    second = jobs.bring("second", base=tmp_path / "a.pdparams", more=tmp_path / "a.pdparams")
    assert second == {"base": first, "more": first} and len(jobs.copies()) == 1
    (tmp_path / "a.pdparams").write_bytes(b"heights")
    assert jobs.bring("first", weights=tmp_path / "a.pdparams")["weights"] != first
    assert len(jobs.copies()) == 2 and first.read_bytes() == b"weights"

    (tmp_path / "a.pdparams").write_bytes(b"weights")
    first.chmod(0o644)
    first.write_bytes(b"weighty")
    jobs.refused(65, "a.pdparams is damaged: .* remove it", weights=tmp_path / "a.pdparams")
    first.write_bytes(b"weigh")
    jobs.refused(65, "not there with its 7 bytes", weights=tmp_path / "a.pdparams")


def test_archives_are_unpacked_and_other_files_stay_as_they_are(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "model.tar").write_bytes(tar([("config.json", b"{}"), ("deep/w.bin", b"1")]))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.npy", "1")
    (tmp_path / "w.npz").write_bytes(packed.getvalue())
    inputs = jobs.bring(model=tmp_path / "model.tar", arrays=tmp_path / "w.npz")
    assert (inputs["model"] / "config.json").read_bytes() == b"{}"
    assert (inputs["model"] / "deep/w.bin").read_bytes() == b"1"
    assert inputs["arrays"].read_bytes() == packed.getvalue()
    jobs.refused(2, "inputs.x is .*absent", x=tmp_path / "absent")


def test_an_earlier_job_gives_its_finished_model_or_a_checkpoint(jobs: Jobs) -> None:
    jobs.refused(
        2, "inputs.base is job earlier: no job of that name has trained", base="job:earlier"
    )
    jobs.earlier(None, epoch_1__pdparams="1", epoch_1__pdopt="2", epoch_2__pdparams="3")
    jobs.refused(2, "earlier, which has not finished; resume it .* checkpoint", base="job:earlier")
    base = jobs.bring(base="job:earlier/epoch_1.*")["base"]
    assert sorted(file.name for file in base.iterdir()) == ["epoch_1.pdopt", "epoch_1.pdparams"]
    assert jobs.bring(base="job:earlier/epoch_2.*")["base"].read_text() == "3"
    output = jobs.earlier(FAILED)
    jobs.refused(2, "earlier, which failed: 3 attempts", base="job:earlier")
    jobs.earlier(None)
    (output / "run/lease-00001.json").write_text('{"run": "run", "boot": "1", "time": 1}')
    jobs.refused(2, "earlier, which still trains: wait", base="job:earlier/epoch_2.pdparams")
    (output / "run/lease-00001.json").unlink()

    jobs.earlier(DONE)
    base = jobs.bring(base="job:earlier")["base"]
    assert sorted(file.name for file in base.rglob("*")) == [
        "epoch_1.pdopt", "epoch_1.pdparams", "epoch_2.pdparams",
    ]  # fmt: skip
    (output / "inference").mkdir()
    (output / "inference/model.pdmodel").write_text("m")
    assert [file.name for file in jobs.bring(base="job:earlier")["base"].iterdir()] == [
        "model.pdmodel"
    ]
    (output / "secret").symlink_to("/etc/hostname")
    jobs.refused(65, "its secret leads out of its folder", base="job:earlier/secret")


def test_other_inputs_are_other_data(jobs: Jobs, tmp_path: Path) -> None:
    def digest(text: str) -> str:
        (tmp_path / "chars.txt").write_text(text)
        jobs.bring(chars=tmp_path / "chars.txt")
        node = Job(jobs.volume / "later").trainer(PADDLE_NODE_RUNTIME="collective")
        return preparation.prepare(node, print).identity.data

    assert digest("a") == digest("a") != digest("b")
