"""`paddle-aws try` takes a job file. It shows each input and a falling loss, or one sentence with
the program's own line.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commands import Run
from kubernetes_api import KubernetesApi
from paddle_node.requirements import install

from paddle_aws.operations.images import interpreter, packages
from tests.image.test_program_packages import wheel

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[2]
FLATS = "".join(
    f"{number % 7},{number % 5},{number % 90 + 20},{number * 900}\n" for number in range(1, 140)
)
JOB = {"name": "mine", "trainers": 2, "program": {"folder": "./mine"}, "data": {"source": "sample"}}
CASES = yaml.safe_load(Path(__file__).with_name("try.yaml").read_text())


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overrides the fixture for the other tests: here programs are tried. No index is asked."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


@pytest.fixture
def mine(folder: Path):
    """Returns a function that makes ./mine from an example, changed in one place, and a job file
    for it.
    """

    def make(example: str, old: str = "", new: str = "", **job: object) -> None:
        shutil.copytree(PROJECT / "examples" / example, folder / "mine")
        train = folder / "mine" / "train.py"
        text = train.read_text()
        assert old in text
        train.write_text(text.replace(old, new) if old else text)
        maker = (
            PROJECT
            / "examples"
            / ("recommendation" if example == "recommendation" else "quick_start")
            / "make_sample.py"
        )
        if example == "regression":
            (folder / "sample").write_text(FLATS)
        else:
            subprocess.run([sys.executable, maker, folder / "sample", "--lines", "500"], check=True)
        (folder / "job.yaml").write_text(yaml.safe_dump(JOB | job))

    return make


@pytest.mark.parametrize(("example", "job", "inputs"), CASES["examples"])
def test_what_each_input_gets_and_a_loss_that_falls(
    mine, run: Run, capfd, example: str, job: dict, inputs: list[str]
) -> None:
    mine(example, **job)
    done = run("try")
    out = capfd.readouterr().out
    assert done.code == 0, done.err
    assert "100 of the first 100 records are used, the first as " in out and all(
        sentence in out for sentence in inputs
    )
    first, last = re.search(r"loss ([\d.]+) -> ([\d.]+) in \d+ passes", out).groups()
    assert float(last) < float(first)


def test_a_header_is_a_warning_and_no_record_once_the_job_says_so(mine, run: Run, capfd) -> None:
    mine("quick_start")
    text = Path("sample").read_text()
    Path("sample").write_text(f"label\ttext\n{text}")
    assert run("try").code == 0
    out = capfd.readouterr().out
    assert "warning: line 1 of sample looks like a header, which a program reads as a record" in out
    assert run("try", "--set", "data.header=true").code == 0
    assert "warning" not in capfd.readouterr().out


def test_an_unscaled_answer_is_a_warning(mine, run: Run, capfd) -> None:
    mine("regression", 'price / summary["price"]', "price")
    assert run("try").code == 0
    out = capfd.readouterr().out
    assert out.count("warning: price is about 45,450: let sample() divide it by its mean") == 1


def fault_of(said: str) -> str:
    """Returns what a trial says, without the line about what is sent."""
    lines = said.strip().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("the program: ")).strip()


@pytest.mark.parametrize("fault", CASES["faults"], ids=lambda fault: fault["new"])
def test_a_fault_is_one_sentence_with_the_programs_own_line(mine, run: Run, fault) -> None:
    mine(fault.get("example", "quick_start"), fault["old"], fault["new"], **fault.get("job", {}))
    done = run("try")
    assert done.code == 2 and re.fullmatch(fault["says"], fault_of(done.err)), done.err


def test_a_submission_with_a_faulty_program_sends_nothing(
    mine, run: Run, api: KubernetesApi
) -> None:
    mine("quick_start", "[words.get(word, 0) for word in text] or [0]", "len(text)")
    done = run("submit")
    assert done.code == 2 and "`text` got int" in done.err
    assert not any(method == "PATCH" for method, _ in api.requests)


@pytest.mark.parametrize("case", CASES["jobs"], ids=lambda case: str(case["job"]))
def test_what_cannot_be_tried_here(
    mine, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mine("quick_start", **case["job"])
    done = run("try")
    assert done.code == case["code"] and re.fullmatch(case["says"], fault_of(done.err)), done.err


def test_whole_files_and_a_reader_of_the_programs_are_read(
    mine, run: Run, folder: Path, capfd
) -> None:
    mine("regression", data={"source": "sample", "format": "files"})
    assert run("try").code == 0
    reader = (
        "def flats(stream, name):\n    for line in stream:\n        yield line.replace(b';', "
        "b',')\n"
    )
    (folder / "mine" / "own.py").write_text(reader)
    (folder / "sample").write_text(FLATS.replace(",", ";"))
    (folder / "job.yaml").write_text(
        yaml.safe_dump(JOB | {"data": {"source": "sample", "format": "own:flats"}})
    )
    capfd.readouterr()
    assert run("try").code == 0
    assert "district (`fleet.ids` wants a list of ints): [1], [2], [3]" in capfd.readouterr().out


PACKAGES = {
    "train.py": "import os, sys\nsys.path.append('lib')\nimport inside, deep\nfrom pack import x\n",
    "lib/inside.py": "",
    "src/deep/__init__.py": "",
    "pyproject.toml": "[project]\nname = 'pack'\n",
}


def lay(folder: Path, files: dict[str, str], **job: object) -> None:
    """Writes ./mine with the files, and a job file with its command."""
    for name, text in files.items():
        (folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mine" / name).write_text(text)
    settings = {
        "name": "mine",
        "trainers": 2,
        "program": {"folder": "./mine"},
        "data": {"source": "s3://a/b", "shared": True},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(settings | job))


TOOLS = {
    "tools/train.py": "import sys\nsys.path.append('..')\nimport net\n",
    "net/__init__.py": "import xxhash\n",  # The agent's own.
}


def test_a_path_that_the_script_sets_is_followed_and_one_that_it_lacks_is_named(
    run: Run, folder: Path, capfd
) -> None:
    """PaddleDetection and PaddleGAN append the folder above; PASSL leaves it to PYTHONPATH."""
    job = {"command": "python tools/train.py", "paddle": "2.6"}
    lay(folder, TOOLS, **job)
    done = run("try")
    assert done.code == 2 and "net/__init__.py:1: there is no module xxhash" in done.err
    lay(folder, {"tools/train.py": "import net\n"}, **job)
    assert run("try").code == 0
    assert "net/ of the program's folder, which `environment: {PYTHONPATH: .}` puts on" in (
        capfd.readouterr().out
    )


def test_epochs_that_begin_anew_are_said(run: Run, folder: Path, capfd) -> None:
    script = (
        "import paddle\nmodel = paddle.Model(net)\nmodel.prepare()\nmodel.fit(data, epochs=9)\n"
    )
    lay(folder, {"train.py": script}, command="python train.py", paddle="2.6")
    assert run("try").code == 0
    assert "train.py:4: paddle.Model.fit counts its epochs anew in each attempt" in (
        capfd.readouterr().out
    )


def test_what_a_command_finds_by_itself_is_named_and_not_refused(
    run: Run, folder: Path, capfd
) -> None:
    """`try` refused PaddleClas and PaddleOCR, whose scripts set their own path."""
    lay(folder, PACKAGES, command="python train.py", paddle="2.6")
    assert run("try").code == 0
    out = capfd.readouterr().out
    assert "train.py:3: inside was not checked: it is lib/inside.py of the program's folder" in out
    assert "train.py:3: deep was not checked: it is src/deep/ of the program's folder" in out
    assert "train.py:4: pack was not checked: pyproject.toml names it, which installs" in out
    lay(
        folder,
        {"train.py": "import inside\n"},
        command="python train.py",
        paddle="2.6",
        environment={"PYTHONPATH": "lib"},
    )
    assert run("try").code == 0
    assert "not checked" not in capfd.readouterr().out


IMPORTS = {
    "train.py": "import os\nimport ppocr\nfrom ppocr.data import load\n",
    "ppocr/__init__.py": "from . import model\nfrom .layers.deep import net\n",
    "ppocr/model.py": "if False:\n  import absent\ntry:\n  import absent\nexcept ImportError: ...",
    "ppocr/layers/deep.py": "from ..model import x\n",
    "ppocr/data/__init__.py": "",
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, None),
        ({".gitignore": "data/\n"}, (
            "train.py:3: there is no module ppocr.data in what the pods get: ppocr/data/ stays on "
            "this machine (data/ in .gitignore, line 1); name it in program.include"
        )),
        ({".gitignore": "/ppocr\n"}, (
            "train.py:2: there is no module ppocr in what the pods get: ppocr/ stays on this "
            "machine (/ppocr in .gitignore, line 1); name it in program.include"
        )),
        ({"ppocr/layers/deep.py": "import inflect_\n"}, (
            "ppocr/layers/deep.py:1: there is no module inflect_: name its package in "
            "program.requirements"
        )),
        ({"ppocr/layers/deep.py": "from ..gone import x\n"}, (
            "ppocr/layers/deep.py:1: there is no module ppocr.gone: the program's folder has no "
            "such file"
        )),
    ],
)  # fmt: skip
def test_imports_are_followed_through_what_is_sent(
    run: Run, folder: Path, capfd, change: dict[str, str], sentence: str | None
) -> None:
    lay(folder, IMPORTS | change, command="python train.py", paddle="2.6")
    done = run("try")
    if sentence is None:
        assert done.code == 0 and "all that it imports is there" in capfd.readouterr().out
        assert f"the program: 5 files of {folder}/mine, " in done.err
    else:
        assert done.code == 2 and done.err.splitlines()[-1] == sentence


PRINTS = """
import os, sys, time
print("reads", sorted(os.listdir(sys.argv[1])), open(sys.argv[2]).read())
for step in range(10**9):
    print(f"step {step} loss={1 / (step + 1):.3e}", flush=True)
    open(f"model-{step}.pdparams", "w").write("weights" * 1000)
    time.sleep(0.05)
"""


def test_a_command_runs_for_a_few_steps_and_its_patterns_are_counted(
    run: Run, folder: Path, capfd
) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "a.txt").touch()
    (folder / "chars.txt").write_text("abc")
    command, inputs = "python train.py {data} {chars}", {"chars": "./chars.txt"}
    metrics = {"step": r"step (\d+)", "loss": "loss: ([0-9.]+)", "lr": "lr ([0-9.]+)"}
    metrics["ips"] = "loss=([0-9.]+)"
    patterns = {"resume": "--from {newest:output/*.pdparams}", "success": "output/result.json"}
    job = {"command": command, "inputs": inputs, "paddle": "2.6", "metrics": metrics, **patterns}
    lay(folder, {"train.py": PRINTS}, **job)
    done = run("try", "--run", "--data", "nowhere.tsv")
    assert (done.code, done.err) == (2, "--data is nowhere.tsv: there is no such file or folder\n")
    done = run("try", "--run", "--data", "data", "--steps", "3")
    out = capfd.readouterr().out
    assert done.code == 0, done.err
    assert "reads ['a.txt'] abc" in out and "stopped: 3 steps were seen" in out
    assert "metrics.step: step (\\d+) matched 3 of 4 lines" in out
    assert (
        "metrics.loss: loss: ([0-9.]+) matched 0 of 4 lines; these look like loss: step 0 loss="
        in out
    )
    assert "matched 3 of 4 lines, and took 1.000 of 1.000e+00: ([-+0-9.e]+) takes the whole" in out
    assert "metrics.lr: lr ([0-9.]+) matched 0 of 4 lines; none has lr and a number" in out
    assert re.search(r"outside output/ goes with the pod: .*model-0.pdparams \(7.0 kB\)", out), out
    assert "resume matched no file, so a break costs the whole training: output/*.pdparams" in out
    assert "success matched no file, so the job would not be done: output/result.json" in out
    lay(folder, {"train.py": PRINTS}, command=command, inputs=inputs, paddle="2.6")
    assert run("try", "--run", "--data", "data", "--time-limit", "1").code == 0
    out = capfd.readouterr().out
    assert "the 1 s are over" in out and "metrics is not set; these lines look like steps: " in out
    lay(
        folder,
        {"train.py": PRINTS},
        command=command,
        inputs=inputs,
        paddle="2.6",
        metrics={"loss": "LOSS (.*)"},
    )
    done = run("try", "--run", "--data", "data", "--time-limit", "1")
    assert done.code == 1 and "no pattern of metrics matched any of " in done.err
    lay(folder, {"train.py": "raise SystemExit(3)\n"}, command=command, inputs=inputs, paddle="2.6")
    done = run("try", "--run", "--data", "data")
    assert done.code == 2 and "the command ended with 3" in done.err


def test_inputs_are_laid_as_the_data_job_lays_them(run: Run, folder: Path, capfd) -> None:
    """A .zip, a link and a name that leads out ended in a traceback."""
    command = ["bash", "-c", "cat {x}/a; echo loss=1"]
    settings = {"metrics": {"loss": "loss=([0-9])"}, "paddle": "2.6", "data": None}
    (folder / "in").mkdir()
    (folder / "in" / "a").write_text("weights\n")
    (folder / "in" / "link").symlink_to("/etc")
    shutil.make_archive("in", "tar", "in")
    (folder / "in" / "link").unlink()
    shutil.make_archive("in", "zip", "in")
    lay(folder, {"x": "y"}, command=command, inputs={"x": "in.zip"}, **settings)
    done = run("try", "--run", "--steps", "1")
    out = capfd.readouterr().out
    assert done.code == 0 and "weights\nloss=1\n" in out, done.err
    for given, sentence in [
        ("in.tar", "inputs.x: in.tar holds link, a link: pack it with tar --dereference"),
        (
            "gone",
            "job.yaml: inputs.x is gone: there is no file gone; give a file (a folder as a .tar)",
        ),
    ]:
        done = run("try", "--run", "--set", f"inputs.x={given}")
        assert done.code == 2 and f"\n{sentence}" in f"\n{done.err}", done.err
    assert run("try", "--set", "inputs.x=gone").code == 2


def test_by_hand_a_program_says_how_it_is_run() -> None:
    environment = {"PYTHONPATH": str(PROJECT / "trainer_image")}
    words = [
        interpreter.PROJECT / ".venv-image/bin/python",
        PROJECT / "examples/quick_start/train.py",
    ]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith("train.py is run by hand: name its folder in a job file (`program: ")
    )


@pytest.fixture
def index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small packages in place of PyPI."""
    wheels = folder / "wheels"
    wheels.mkdir()
    for name, version, *needs in (
        ("scikit-learn", "1.0"),
        ("inflect", "7.0", "typeguard"),
        ("typeguard", "4.0"),
        ("setuptools", "80.0"),
        ("timer", "0.3"),
        ("humanize", "4.0"),
        ("opencv-python", "4.9", "numpy"),
    ):
        wheel(wheels, name, version, *needs)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return wheels


def test_missing_packages_are_one_line_to_paste_before_anything_is_installed(
    mine, run: Run, folder: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the program's own package; names by data, releases by uv, the repository's own words
    first.
    """
    mine("quick_start", command="python train.py", paddle="2.6", data=None)
    (folder / "mine" / "train.py").write_text("import own.part\nimport sklearn, yaml, typeguard\n")
    own = folder / "mine" / "own"
    own.mkdir()
    (own / "__init__.py").write_text("")
    (own / "part.py").write_text(
        "import inflect, cv2, pkg_resources, nowhere_at_all\n"
        "from timer import timer  # pyimport2pkg knows pywin32's alone.\n"
        "def plot():\n    import humanize  # Theirs, so they run it.\n    import not_declared\n"
    )
    (folder / "mine" / "requirements.txt").write_text(
        "scikit-learn>=1  # theirs\nopencv-python==4.2.0.32\nprotobuf==3.20.2\nhumanize\n"
    )
    plain = "# mine\nname: mine\ntrainers: 2\npaddle: '2.6'\ncommand: python train.py  # runs\n"
    text = plain + "program: {folder: ./mine, requirements: [typeguard]}\n"
    (folder / "job.yaml").write_text(text)
    done = run("try")
    line = (
        "requirements: [typeguard, humanize, inflect, opencv-python, scikit-learn>=1, "
        "setuptools<81, timer]"
    )
    assert done.code == 2 and done.err.splitlines()[-1] == line, done.err
    assert "sklearn (train.py:2)" in done.err and "cv2 (own/part.py:1)" in done.err
    assert "opencv-python==4.2.0.32 cannot be had: Because there is no version of" in done.err
    assert "protobuf==3.20.2 cannot be had" in done.err
    assert "no index has nowhere-at-all for this Python: name the package" in done.err
    assert "pywin32" not in done.err
    assert (folder / "job.yaml").read_text() == text
    assert "`paddle-aws try --install` makes it" in run("try", "--write").err
    written = (folder / "job.yaml").read_text()
    assert written == plain + f"program: {{folder: ./mine, {line}}}\n"
    # What is written satisfies the next look. A terminal is never silent meanwhile.
    monkeypatch.setattr(install, "REPORT_INTERVAL", 0.05)
    monkeypatch.setenv("COLUMNS", "200")
    again = run("try").err
    assert "requirements: [" not in again and "--install` makes it" in again
    assert " s: looking for the packages that it imports" in again


@pytest.mark.parametrize(
    ("program", "written"),
    [
        ("", "program: {requirements: [six]}\n"),
        ("program: {folder: ./x}\n", "program: {requirements: [six], folder: ./x}\n"),
        (
            "program:\n  folder: ./x  # there\n",
            "program:\n  requirements: [six]\n  folder: ./x  # there\n",
        ),
        (
            "program:\n  requirements:\n  - a\n  - b\n\n  folder: ./x\n",
            "program:\n  requirements: [six]\n\n  folder: ./x\n",
        ),
    ],
)
def test_requirements_are_written_and_the_rest_of_the_file_stays(
    folder: Path, program: str, written: str
) -> None:
    file = folder / "job.yaml"
    file.write_text(f"# mine\nname: a\n{program}")
    packages.write_requirements(file, ["six"])
    assert file.read_text() == f"# mine\nname: a\n{written}"
