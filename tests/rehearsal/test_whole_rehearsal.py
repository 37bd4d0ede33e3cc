"""`make rehearse` itself, on real parts: interrupted in each phase, run twice, two at once, and on
a user's own data.
"""

import gzip
import json
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

VARIANTS = Path(__file__).parents[1] / "aws" / "variants"
MAKE = ("make", "rehearse")
REFUSED = yaml.safe_load(Path(__file__).with_name("refused_jobs.yaml").read_text())


@pytest.fixture(scope="module")
def clone(make_clone):
    return make_clone("first")


@pytest.fixture(scope="module")
def second_clone(make_clone):
    return make_clone("second")


def read_until(process, marker: str) -> str:
    """Returns the lines up to and including the one that has `marker`."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if marker in line:
            return "".join(lines)
    raise AssertionError(f"never said {marker}:\n{''.join(lines)}")


@pytest.mark.parametrize(
    ("after", "during", "number"),
    [
        pytest.param("✓ emulator", "bootstrap", signal.SIGTERM, marks=pytest.mark.long),
        ("✓ bootstrap", "deploy", signal.SIGINT),
        pytest.param("✓ measure", "destroy", signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_ctrl_c_leaves_no_process(clone, after, during, number):
    for _ in range(3):
        rehearsal = clone.start()
        read_until(rehearsal, after)
        # The emulator runs before every phase; a phase has begun once the CDK's processes run
        # beside it.
        clone.wait_until_running(rehearsal, 2)
        # An impatient user presses it twice.
        for _ in range(2):
            if rehearsal.poll() is None:
                os.killpg(rehearsal.pid, number)
                time.sleep(0.1)
        said, _ = rehearsal.communicate()
        if rehearsal.returncode:
            break  # With 0 it ended before the signal came: a destroy takes one second.
    assert rehearsal.returncode == 130, said
    assert "Traceback" not in said and "interrupted: no process is left" in said
    clone.wait_until_none_runs()
    assert {entry.name for entry in clone.state.iterdir()} <= {
        "job.json",
        "last",
        "lock",
        "logs",
        "manifests",
        "volume",
    }


@pytest.mark.long
def test_make_rehearse_beside_another_clone_after_all_that(clone, second_clone):
    """Runs in the clone whose rehearsals were interrupted and killed, and in another clone at the
    same time.
    """
    one = clone.start(command=MAKE)
    two = second_clone.start()
    begun = read_until(one, "rehearsal of job.yaml")
    third = clone.start()
    refused, _ = third.communicate()
    assert (
        third.returncode == 2
        and "another rehearsal runs in this folder" in refused
        and len(refused.splitlines()) <= 2
    )
    said, also_said = begun + one.communicate()[0], two.communicate()[0]
    assert (one.returncode, two.returncode) == (0, 0), said + also_said

    phases = re.findall(r"^✓ (\w+) .* [\d.]+ s$", said, re.M)
    assert phases == [
        "try",
        "emulator",
        "bootstrap",
        "deploy",
        "manifests",
        "upload",
        "split",
        "train",
        "measure",
        "destroy",
    ]
    accuracy, baseline = re.search(
        r"accuracy ([\d.]+) \(always guessing \w+: ([\d.]+)\)", said
    ).groups()
    assert float(accuracy) > float(baseline) + 0.2
    assert "the inventory is as before" in said and "without effect on one machine" in said
    # The table that people follow has a row for each pass, and the output tree is the contract's.
    losses = re.findall(
        r"^ +\d +[\d.]+ +([\d.]+)  ([\d.]+)  ([\d.]+) +[\d,]+ +[\d.]+ *$", said, re.M
    )
    job = clone.state / "volume" / "quick-start"
    shards = json.loads((job / "data-manifest.json").read_text())["shards"]
    for trainer, shard in enumerate(shards):
        metrics = [
            json.loads(line)
            for line in (job / f"output/node_{trainer}/metrics.jsonl").read_text().splitlines()
        ]
        assert [row[trainer] for row in losses] == [f"{line['loss']:.4f}" for line in metrics]
        assert {line["records"] for line in metrics} == {
            sum(file["records"] for file in shard["files"])
        }
        assert (job / f"output/node_{trainer}/train.log").stat().st_size and (
            job / f"{trainer}/data"
        ).is_dir()
    assert [entry.name for entry in sorted((job / "output").glob("pass-*"))] == [
        f"pass-{i:05d}" for i in range(5)
    ]
    assert all((entry / "done").exists() for entry in (job / "output").glob("pass-*"))
    assert sorted(entry.name for entry in clone.state.iterdir()) == [
        "job.json",
        "last",
        "lock",
        "logs",
        "manifests",
        "volume",
    ]

    assert "predict with it:" in said and clone.left_running == second_clone.left_running == []


@pytest.mark.long
def test_a_users_own_corpus_and_a_program_from_a_folder(
    second_clone, tmp_path, monkeypatch, dead_proxy
):
    """Twenty thousand compressed lines with eight labels, in another region, on a self-managed
    cluster, with retain: true, in a shell whose proxy is dead.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus(tmp_path / "mine.tsv.gz", 20_000)
    mine = tmp_path / "mine"
    shutil.copytree(
        second_clone.folder / "examples/quick_start",
        mine,
        ignore=shutil.ignore_patterns("*.tsv", "make_sample.py"),
    )
    # Each pod has its own copy of the folder, and can write to it.
    train, touched = (
        mine / "train.py",
        "from pathlib import Path\nPath(__file__).with_name('mark').touch()\n",
    )
    train.write_text(f"{touched}{train.read_text()}")
    (mine / "requirements.txt").write_text("# mine\nnumpy<1.20  # Python 3.11 has none\n")
    program = {
        "from": "folder",
        "path": str(mine),
    }
    job = {
        "name": "mine",
        "trainers": 3,
        "passes": 2,
        "data": {"source": "mine.tsv.gz", "hold_out": 0.1},
    }
    (tmp_path / "job.yaml").write_text(
        yaml.safe_dump({**job, "program": program, "resources": {"scratch": "1Gi"}})
    )
    settings = (
        (VARIANTS / "self-managed-cluster.yaml")
        .read_text()
        .replace("tests/aws/variants", str(VARIANTS))
    )
    settings = settings.replace("retain: false", "retain: true").replace(
        "us-west-2", "eu-central-1"
    )
    (tmp_path / "cluster.yaml").write_text(f"region: eu-central-1\n{settings}")
    asked = ("--job", str(tmp_path / "job.yaml"), "--config", str(tmp_path / "cluster.yaml"))
    code, said = second_clone.run(*asked)
    assert code == 0, said
    accuracy, baseline = re.search(
        r"accuracy ([\d.]+) \(always guessing l0: ([\d.]+)\)", said
    ).groups()
    assert float(accuracy) > 0.8 > 0.5 > float(baseline)
    assert re.search(r"kept +kms key ", said) and re.search(r"kept +efs file system ", said)
    assert re.search(r"kept +ec2 snapshot ", said), "of the control plane's state"
    assert "resources that `retain: true` keeps" in " ".join(said.replace("│", " ").split())
    folder = second_clone.state / "volume" / "mine"
    (archive,) = (folder / "programs").iterdir()
    assert (
        archive.suffix == ".tar"
        and not (folder / "quick_start").exists()
        and not (mine / "mark").exists()
    )
    # A requirement that does not fit is reported before anything is deployed. The index is asked
    # through the shell's proxy.
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    (tmp_path / "job.yaml").write_text(
        yaml.safe_dump({**job, "program": program | {"requirements": "requirements.txt"}})
    )
    code, said = second_clone.run(*asked)
    assert code == 2 and "bootstrap" not in said
    assert re.search(
        r"program\.requirements (do not fit together|cannot be installed): .*numpy<1\.20.* "
        r"\(the image's Paddle 2\.6 needs numpy<2\)",
        " ".join(said.split()),
    )


def test_a_failed_trainer_fails_the_rehearsal_with_its_last_words(second_clone, tmp_path):
    (tmp_path / "bad.tsv").write_text(
        "".join(f"no label in line {number}\n" for number in range(600))
    )
    (tmp_path / "job.yaml").write_text(
        "name: bad\ntrainers: 2\npasses: 1\n"
        "program: {from: image, folder: quick_start, packages: [libgl1]}\ndata: "
        "{source: bad.tsv, hold_out: 0.1}\n"
    )
    code, said = second_clone.run("--local", "--no-try", "--job", str(tmp_path / "job.yaml"))
    assert code == 1, said
    assert (
        "✗ train" in said
        and "training failed: Job bad-" in said
        and "label<TAB>text" in said.split("training failed")[1]
    )
    assert "not installed here, this machine's own are used: libgl1" in " ".join(said.split())


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row["refused"])
def test_bad_input_is_one_sentence(clone, tmp_path, row):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"name": "x", **row["job"]}))
    settings = yaml.safe_load((clone.folder / "cluster.yaml").read_text())
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(settings | row.get("cluster", {})))
    config = row.get("config", str(tmp_path / "cluster.yaml"))
    code, said = clone.run("--job", str(tmp_path / "job.yaml"), "--config", config)
    *begun, sentence = said.splitlines()
    assert code == 2 and row["refused"] in sentence
    assert len(begun) <= 1 and all(line.startswith("rehearsal of job.yaml") for line in begun)


def corpus(file, lines: int) -> None:
    """Writes lines of words with frequencies like a language's. Three words of each line betray the
    label.
    """
    chance = random.Random(7)
    with gzip.open(file, "wt") as out:
        for _ in range(lines):
            (label,) = chance.choices(range(8), [40, 25, 12, 8, 6, 4, 3, 2])
            words = [int(20_000 ** chance.random()) for _ in range(chance.randint(10, 60))]
            words += [200 + 350 * label + chance.randrange(40) for _ in range(3)]
            out.write(f"l{label}\t{' '.join(f'w{word}' for word in words)}\n")
