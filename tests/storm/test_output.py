"""What a verdict says of the files that a run left in output/, and of the numbers it compares."""

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from paddle_node.volume.job_folder import JobFolder

from paddle_aws.storm.contents import read_output
from paddle_aws.storm.recorder import read_numbers
from paddle_aws.storm.trace import Trace
from paddle_aws.storm.verdict import Calm, judge

Leave = Callable[[Path, int], object]
"""Writes what a run leaves in a folder; the number is 1 or 2 for calm runs, and 3 for the other."""
WEIGHTS = np.linspace(0, 1, 50)


def sentences(place: Path, leave: Leave, attempts: int = 3) -> list[str]:
    traces = []
    for number in (1, 2, 3):
        folder = JobFolder(place / str(number))
        folder.output.mkdir(parents=True)
        folder.node(0).mkdir()
        folder.train_log(0).write_text(str(number))
        leave(folder.output, number)
        files = read_output(folder, 1 if number < 3 else attempts)
        traces.append(Trace(succeeded=True, files=files))
    return [finding.sentence for finding in judge(traces[2], Calm(traces[:2])).findings]


def text(*runs: str) -> Leave:
    return lambda output, number: (
        (output / "log").mkdir()
        or ((output / "history").write_text(runs[min(number, len(runs)) - 1]))
    )


def arrays(*runs: np.ndarray) -> Leave:
    return lambda output, number: np.savez(output / "final.npz", w=runs[number - 1])


def missing(output: Path, number: int) -> None:
    for step in (10, 20):
        if (number, step) != (3, 20):
            (output / f"ckpt-{step}").write_text("x")
    (output / f"events.{number}").write_text("named by its time")


def pickled(output: Path, number: int) -> None:
    """The same values; of the third run, the key is another object each time."""
    key = "moment" if number < 3 else "".join(["mom", "ent"])
    state = OrderedDict([(key, WEIGHTS), ("again", ["moment", key])])
    with (output / "state.pkl").open("wb") as file:
        pickle.dump(state, file)


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


def harmful(output: Path, number: int) -> None:
    (output / "model.pdparams").write_bytes(pickle.dumps({"w": [Harmful(), number == 3]}))


def cut(output: Path, number: int) -> None:
    (output / "blob").write_bytes(os.urandom(2000 if number < 3 else 900) + b"\xff\0")


def link(output: Path, number: int) -> None:
    if number < 3:
        (output / "newest").write_text("x")
    else:
        (output / "newest").symlink_to("/nowhere/else")


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        (missing, "output/ lacks ckpt-20, which undisturbed runs leave"),
        (link, "output/ lacks newest, which undisturbed"),
        (text("1\n2\n3\n"), ""),
        (text("1\n2\n3\n", "1\n2\n3\n", "1\n2\n2\nresumed\n3\n"), ""),
        (
            text("2\n3\n4\n", "2\n3\n4\n", "4\n"),
            "output/history lacks 2 lines that undisturbed runs have",
        ),
        (text("by attempt 1", "by attempt 1", "by attempt 3"), ""),
        (text("by attempt 1", "by attempt 1", "by attempt 4"), "output/history lacks 1 line"),
        (text("took 1.5 s\nloss 7", "took 1.7 s\nloss 7", "took 9 s\nloss 7"), ""),
        (arrays(WEIGHTS, WEIGHTS, WEIGHTS), ""),
        (
            arrays(WEIGHTS, WEIGHTS, WEIGHTS * 1.001),
            "output/final.npz has other values than in undisturbed",
        ),
        (arrays(WEIGHTS, WEIGHTS * 1.01, WEIGHTS * 1.02), ""),
        (arrays(WEIGHTS, WEIGHTS * 1.01, WEIGHTS * 1.5), "output/final.npz has w of 0.8"),
        (pickled, ""),
        (
            harmful,
            "output/model.pdparams is not as in undisturbed runs, where it is always the same",
        ),
        (cut, "output/blob has 902 bytes; undisturbed runs have 2002"),
    ],
)
def test_a_run_leaves_what_calm_runs_leave(tmp_path, leave, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = sentences(tmp_path, leave)
    assert [bool(said)] == [bool(found)] and found[:1] == [s for s in found[:1] if said in s], found
    assert not (tmp_path / "harmed").exists()


def test_the_files_of_passes_are_found_behind_their_links(tmp_path):
    folder = JobFolder(tmp_path)
    attempt = folder.attempt("run", 1) / "pass-00000"
    attempt.mkdir(parents=True)
    (attempt / "part-0").write_text("x")
    folder.pass_dir(0).symlink_to("attempts/run-1/pass-00000")
    (folder.output / "away").symlink_to("/etc")
    assert list(read_output(folder, 1)) == ["pass-00000/part-0"]


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("loss: 0.25 - acc: 0.5", {"loss": 0.25, "acc": 0.5}),
        ("save checkpoint at /volume/hapi-33474672-0-5/final", {}),
        ("epoch 3/40 loss=0.5, acc=91.2% in 12:30:05 of 2026-11-28", {"loss": 0.5, "acc": 91.2}),
        ('{"loss": 2e-3, "n": 3}', {"loss": 0.002, "n": 3}),
        ("no nan here, took 3.2s, rank-1", {}),
        (
            "loss: nan auc=inf",
            {"loss": pytest.approx(float("nan"), nan_ok=True), "auc": float("inf")},
        ),
    ],
)
def test_digits_in_a_path_a_name_or_a_time_are_no_number(line, numbers):
    assert read_numbers(line) == numbers
