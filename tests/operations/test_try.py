"""`paddle-aws try`: a job file in; what each input got and a loss that falls, or one sentence with the program's own line."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Run
from kubernetes_api import KubernetesApi

from operations.images import interpreter

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[2]
FLATS = "".join(f"{number % 7},{number % 5},{number % 90 + 20},{number * 900}\n" for number in range(1, 140))
JOB = "name: mine\ntrainers: 2\nprogram: {folder: ./mine}\ndata: {source: sample}\n"


@pytest.fixture(autouse=True)
def untried() -> None:
    """Here programs are tried."""


@pytest.fixture
def mine(folder: Path):
    """Makes ./mine of an example, changed in one place, and a job file for it."""

    def made(example: str, old: str = "", new: str = "", job: str = "", sample: str = "") -> None:
        shutil.copytree(PROJECT / "examples" / example, folder / "mine")
        train = folder / "mine" / "train.py"
        text = train.read_text()
        assert old in text
        train.write_text(text.replace(old, new) if old else text)
        maker = PROJECT / "examples" / ("recommendation" if example == "recommendation" else "quick_start") / "make_sample.py"
        if not sample and example != "regression":
            subprocess.run([sys.executable, maker, folder / "sample", "--lines", "500"], check=True)
        else:
            (folder / "sample").write_text(sample or FLATS)
        (folder / "job.yaml").write_text(JOB + job)

    return made


@pytest.mark.parametrize(
    ("example", "job", "inputs"),
    [
        ("quick_start", "", ["text (`fleet.ids` wants a list of ints): [", "label (`fleet.label` wants an int): "]),
        ("recommendation", "", ["user (`fleet.ids` wants a list of ints): [", "rating (`fleet.number` wants a finite number): "]),
        ("regression", "", ["district (`fleet.ids` wants a list of ints): [1], [2], [3]", "area (`fleet.number` wants"]),
        ("collective", "mode: collective\n", ["text (list): [", "label (int): "]),
    ],
)
def test_what_each_input_gets_and_a_loss_that_falls(mine, run: Run, capfd, example: str, job: str, inputs: list[str]) -> None:
    mine(example, job=job)
    done = run("try")
    said = capfd.readouterr().out
    assert done.code == 0, done.err
    assert "100 of the first 100 records are used, the first as " in said and all(each in said for each in inputs)
    first, last = re.search(r"loss ([\d.]+) -> ([\d.]+) in \d+ passes", said).groups()
    assert float(last) < float(first)


WORDS = "[words.get(word, 0) for word in text] or [0]"
FAULTS = [
    (WORDS, "len(text)", r"train\.py:38: `text` got int \d+: `fleet\.ids` wants a list of ints"),
    ("labels.get(label, -1)", "label", r"train\.py:38: `label` got str '\w+': `fleet\.label` wants an int"),
    ('"label": labels', '"lable": labels', r"train\.py:38: `label` is missing: sample\(\) returns text, lable"),
    ("labels.get(label, -1)", "99", r"OutOfRangeError: label value .* 99 .* \(train\.py:48\)"),
    ("text.lower()", "text.lowr()", r"AttributeError: .*'lowr' \(train\.py:21\): parse got record 1 of sample, '.*'"),
    ('"\\t"', '"::"', r"sample: 100 of 100 records .* record 1 of sample \(ValueError: a line .*\(train\.py:20\)\): '.*"),
    (
        "    return fleet.Model",
        "    return loss\n    fleet.Model",
        r"train\.py:43: it returns Variable, a fleet\.Model is needed",
    ),
    ('{"labels": labels, "words": words}', "{1, 2}", r"TypeError: Object of type set is not JSON .* \(train\.py:53\)"),
    ("import paddle\n", "import paddel\n", r"ModuleNotFoundError: No module named 'paddel' \(train\.py:8\)"),
    ("def count(texts):", "def count(texts)", r"SyntaxError: expected ':' \(train\.py:24\)"),
    ("learning_rate=0.01", "learning_rate=1e30", r"the loss is no number in pass \d over these records: lower the learning rate"),
    ("job.run(", "job.run_collective(None, ", r"the job's runtime is fleet-ps, and job\.run_collective needs collective: .*"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), FAULTS, ids=[new for _, new, _ in FAULTS])
def test_a_fault_is_one_sentence_with_the_programs_own_line(mine, run: Run, old: str, new: str, sentence: str) -> None:
    mine("quick_start", old, new)
    done = run("try")
    assert done.code == 2
    assert re.fullmatch(sentence, done.err.strip()), done.err


def test_a_crash_of_paddle_is_a_sentence_too(mine, run: Run) -> None:
    mine("collective", "words.get(word, 0) for", "words.get(word, 0) + 9_999_999 for", job="mode: collective\n")
    done = run("try")
    assert done.code == 2
    assert re.fullmatch(r"Paddle crashed \(signal 11\) in train\.py:41: is an id not below .* rows\?", done.err.strip()), done.err


def test_a_submission_with_a_faulty_program_sends_nothing(mine, run: Run, api: KubernetesApi, folder: Path) -> None:
    mine("quick_start", WORDS, "len(text)")
    done = run("submit")
    assert done.code == 2 and "`text` got int" in done.err
    assert not any(method == "PATCH" for method, _ in api.requests)


@pytest.mark.parametrize(
    ("job", "code", "sentence"),
    [
        ("data: {source: none}", 2, "data.source is none: there is no such file; give a file, s3:// or https://"),
        ("data: {source: 'http://127.0.0.1:9/x'}", 3, r"data.source cannot be read from here: http://127.0.0.1:9/x .*"),
        ("data: {prepared: true}", 2, "the data lies on the volume: name a file of such records with --data"),
        ("command: python train.py\ndata: {source: sample, shared: true}", 0, ""),
        ("command: sh run.sh\ndata: {source: sample, shared: true}", 0, ""),
        (
            "paddle: '3.3'\nmode: collective\ndata: {source: sample}",
            2,
            "no environment here has Paddle 3.3: .*",
        ),
        (
            "program: {folder: quick_start}\nimage: my/own:1\ndata: {source: sample}",
            2,
            "program.from is image: its files are not .*",
        ),
    ],
)
def test_what_cannot_be_tried_here(
    mine, run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, code: int, sentence: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mine("quick_start")
    program = "" if "program:" in job else "program: {folder: ./mine}\n"
    (folder / "job.yaml").write_text(f"name: mine\ntrainers: 2\n{program}{job}")
    done = run("try")
    assert done.code == code, done.err
    assert re.fullmatch(sentence, done.err.strip()), done.err


def test_a_commands_imports_are_looked_for(mine, run: Run) -> None:
    mine("quick_start", "import paddle\n", "import absent.part\n", job="command: python train.py\n")
    done = run("try")
    assert done.code == 2
    assert done.err.strip() == "train.py:8: there is no module absent: name its package in program.requirements"


def test_whole_files_and_a_reader_of_the_programs_are_read(mine, run: Run, folder: Path, capfd) -> None:
    mine("regression")
    reader = "def flats(stream, name):\n    for line in stream:\n        yield line.replace(b';', b',')\n"
    (folder / "mine" / "own.py").write_text(reader)
    (folder / "sample").write_text(FLATS.replace(",", ";"))
    (folder / "job.yaml").write_text(JOB.replace("sample}", "sample, format: 'own:flats'}"))
    assert run("try").code == 0
    assert "district (`fleet.ids` wants a list of ints): [1], [2], [3]" in capfd.readouterr().out
    (folder / "job.yaml").write_text(JOB.replace("sample}", "sample, format: files}"))
    (folder / "sample").write_text(FLATS)
    assert run("try").code == 0


def test_by_hand_a_program_says_how_it_is_run() -> None:
    environment = {"PYTHONPATH": str(PROJECT / "trainer_image")}
    words = [interpreter.PROJECT / ".venv-image/bin/python", PROJECT / "examples/quick_start/train.py"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("train.py is run by hand: name its folder in a job file (`program: ")
