"""quick_start, trained by three pods under the agent. Real Paddle: about 15 s for the whole
file.
"""

import json

import pytest
from training_job import TrainingJob

pytestmark = pytest.mark.slow
PASSES = 5


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    with TrainingJob(tmp_path_factory.mktemp("quick_start"), PASSES=str(PASSES)) as job:
        job.split(job.make_sample())
        job.run()
        yield job


def test_every_trainer_reports_its_shard_and_a_falling_loss_and_each_pass_has_every_pservers_part(
    trained: TrainingJob,
):
    for trainer, records in enumerate(trained.records()):
        metrics = trained.metrics(trainer)
        assert [(m["pass"], m["records"], m["skipped"]) for m in metrics] == [
            (p, records, 0) for p in range(PASSES)
        ]
        assert metrics[-1]["loss"] < metrics[0]["loss"] / 2
    for number in range(PASSES):
        directory = trained.folder.pass_dir(number)
        files = {
            file.relative_to(directory).as_posix(): file.stat().st_mtime_ns
            for file in directory.rglob("*")
        }
        assert {"done", "path.txt", "program/train.py", "vocabulary.json"} <= files.keys()
        assert {f"001/part-{server:03d}.gz" for server in range(3)} <= files.keys()
        assert directory.readlink().as_posix() == f"attempts/run-1/pass-{number:05d}"
        assert files["done"] == max(files[name] for name in files if (directory / name).is_file())


def test_the_last_pass_clearly_beats_the_commonest_answer(trained: TrainingJob):
    found = trained.judged()
    assert found["pass"] == PASSES - 1 and found["metric"] == "accuracy" and found["records"] == 300
    assert found["value"] > 0.75 > 0.55 > found["baseline"]
    assert found["baseline_of"] == "always guessing arts" and found["better"]


def test_the_exported_model_needs_nothing_but_paddle(trained: TrainingJob):
    """Loads the model as another user would: without a pserver and without our code."""
    predicted = trained.predict("""
import json, zlib
words = json.load(open("vocabulary.json"))["words"]
text = [[words.index(word) + 1] for word in ("health1", "health2")]
record = {"text": paddle.base.create_lod_tensor(numpy.array(text), [[2]], paddle.CPUPlace())}
print(numpy.argmax(paddle.static.Executor().run(program, feed=record, fetch_list=outputs)[0]))
""")
    vocabulary = json.loads((trained.folder.output / "inference/vocabulary.json").read_text())
    *probabilities, answer = predicted.stdout.replace("[", "").replace("]", "").split()
    assert len(probabilities) == 4 and vocabulary["labels"][int(answer)] == "health", (
        predicted.stdout + predicted.stderr
    )
    assert trained.predict_records("health1 health2", "unheard")[0] == "health"


@pytest.mark.parametrize("part", ["000/part-001-00003.gz", "001/part-002.gz"])
@pytest.mark.parametrize(("flip", "why"), [(None, "{} is missing"), (1, "{} was changed")])
def test_a_pass_without_a_part_or_with_a_changed_byte_is_not_evaluated(
    trained: TrainingJob, part: str, flip, why: str
):
    file = trained.folder.pass_dir(PASSES - 1) / part
    before = file.read_bytes()
    if flip:
        file.write_bytes(before[:-1] + bytes([before[-1] ^ flip]))
    else:
        file.unlink()
    try:
        result = trained.evaluate()
    finally:
        file.write_bytes(before)
    assert (result.returncode, result.stdout) == (65, "")
    assert why.format(part) in result.stderr and "Traceback" not in result.stderr
