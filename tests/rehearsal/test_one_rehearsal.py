"""The frame of a rehearsal: the machine that it needs, and its closing summary."""

import io

import pytest
from rich.console import Console

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.jobs.progress.training_metrics import Pass, TrainerPass
from paddle_aws.rehearsal.__main__ import main
from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.rehearse import check_records
from paddle_aws.rehearsal.summary import Results, summary


@pytest.mark.parametrize(
    ("system", "processor", "clone", "sentence"),
    [
        (
            "Darwin",
            "arm64",
            "clone",
            "this machine is Darwin arm64: a rehearsal needs Linux on x86-64",
        ),
        (
            "Linux",
            "aarch64",
            "clone",
            "this machine is Linux aarch64: a rehearsal needs Linux on x86-64",
        ),
        (
            "Linux",
            "x86_64",
            "my clone",
            "this clone lies in {}: parameter servers save through a shell",
        ),
    ],
)
def test_a_machine_or_a_clone_that_cannot_rehearse(
    tmp_path, monkeypatch, capsys, system, processor, clone, sentence
):
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: processor)
    for environment in (".venv-image", ".venv-emulator"):
        (tmp_path / clone / environment / "bin").mkdir(parents=True)
        (tmp_path / clone / environment / "bin/python").touch()
    (tmp_path / clone / "trainer_image").mkdir()
    (tmp_path / clone / "trainer_image/Dockerfile").touch()
    monkeypatch.setattr("paddle_aws.rehearsal.__main__.PROJECT", tmp_path / clone)
    monkeypatch.setattr("sys.argv", ["rehearsal"])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert said.startswith(sentence.format(tmp_path / clone)) and said.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(BadInput, match=r"file is not a writable folder \(File exists\)"),
        RehearsalFolder(tmp_path / "file"),
    ):
        pass


@pytest.mark.parametrize("link", [True, False])
def test_a_folder_that_no_rehearsal_made_is_refused_and_keeps_all(tmp_path, link):
    """A rehearsal empties its folder: a link, or a folder of somebody else's, loses nothing."""
    theirs = tmp_path / ("theirs" if link else ".rehearsal")
    theirs.mkdir()
    (theirs / "precious").write_text("x")
    if link:
        (tmp_path / ".rehearsal").symlink_to(theirs)
    said = "is a link" if link else "holds precious, which is no rehearsal's"
    with pytest.raises(BadInput, match=said), RehearsalFolder(tmp_path / ".rehearsal") as folder:
        folder.begin()
    assert [entry.name for entry in theirs.iterdir()] == ["precious"]


@pytest.mark.parametrize(
    ("better", "said", "colour"),
    [
        (True, "mine: trained", "\x1b[32m"),
        (False, "trained, but no better than a constant guess", "\x1b[33m"),
    ],
)
def test_a_model_that_learned_nothing_is_not_all_green(better, said, colour):
    job = TrainingJob.parse({"name": "mine", "trainers": 1, "data": {"source": "a"}})
    console = Console(width=100, force_terminal=True, color_system="standard", file=io.StringIO())
    console.print(summary(Results(job, {}, better), [], 1.0))
    frame = next(line for line in console.file.getvalue().splitlines() if said in line)
    assert frame.startswith(colour)


def test_lines_that_the_program_leaves_out_are_read_and_none_may_be_missing():
    """A header, for which `parse` returns None, counts among what a trainer read."""
    shards = {"shards": [{"files": [{"records": 1801}]}, {"files": [{"records": 1800}]}]}
    trainers = [TrainerPass(0, 0.5, 1801, 1.0, 2.0), TrainerPass(1, 0.5, 1800, 1.0, 2.0)]
    check_records([Pass(0, 1, tuple(trainers))], shards)
    short = TrainerPass(1, 0.5, 1799, 1.0, 2.0)
    with pytest.raises(Failed, match=r"^pass 1 read \(1801, 1799\) records by trainer, and the sh"):
        check_records([Pass(1, 1, (trainers[0], short))], shards)


def test_the_summary_repeats_what_the_program_printed_last_not_paddle(tmp_path):
    (tmp_path / "train.py").touch()
    (tmp_path / "README").write_text("mine")
    settings = {"name": "mine", "trainers": 1, "command": "python train.py"}
    job = TrainingJob.parse(settings, tmp_path)
    log = tmp_path / "pod.log"
    noise = "[trainer 0.0] I1126 18:00:00.000000  7 tcp_store.cc:293] receive shutdown event\n" * 9
    log.write_text(f"{noise}[trainer 0.0] accuracy 0.93\n{noise}")
    assert "accuracy 0.93" in str(Results.from_program(job, log, tmp_path).rows["printed"])
    assert "tcp_store" not in str(Results.from_program(job, log, tmp_path).rows["printed"])
