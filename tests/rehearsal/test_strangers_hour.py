"""A stranger's first hour: a fresh clone, own data, an own regression with two mistakes in it, and a model to take home."""

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """\
import paddle
from paddle_node import fleet

DISTRICTS = 8


def parse(line):
    district, rooms, area, price = line.split("\\t")
    return int(district), float(rooms), float(area), float(price)


def sample(flat):
    district, rooms, area, price = flat
    return {"district": district, "rooms": rooms, "area": area, "price": price}


def network():
    district, price = fleet.ids("district"), fleet.number("price")
    where = fleet.pooled(fleet.embedding("districts", district, rows=DISTRICTS, width=4))
    known = paddle.concat([where, fleet.number("rooms"), fleet.number("area")], axis=1)
    guess = paddle.static.nn.fc(known, 1)
    loss = paddle.mean(paddle.nn.functional.square_eror_cost(guess, price))
    return fleet.Model(loss, prediction=guess, answer=price)


fleet.start(parse).run(network, sample, learning_rate=0.02, batch=16)
"""
JOB = """\
name: flats
trainers: 2
passes: 12
program: {folder: ./my_program}
data: {source: flats.tsv, hold_out: 0.2}
"""


@pytest.fixture
def clone(fresh_clone: Path) -> Path:
    folder = fresh_clone
    chance = random.Random(5)
    dear = [chance.uniform(-2, 2) for _ in range(8)]
    with (folder / "flats.tsv").open("w") as rows:
        for _ in range(800):
            district, rooms, area = chance.randrange(8), chance.randint(1, 5) / 5, chance.uniform(0, 1)
            rows.write(f"{district}\t{rooms}\t{area:.3f}\t{dear[district] + rooms + 2 * area + chance.gauss(0, 0.1):.3f}\n")
    (folder / "my_program").mkdir()
    (folder / "my_program" / "train.py").write_text(PROGRAM)
    (folder / "job.yaml").write_text(JOB)
    return folder


def test_from_a_clone_to_a_prediction(clone: Path) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        # Of the clone, where the linked environment would take the original's.
        own = {"PYTHONPATH": f"{clone}{os.pathsep}{clone / 'trainer_image'}"} if command[0] != "make" else {}
        found = os.environ | {"PATH": f"{clone}/.venv/bin:{os.environ['PATH']}", "NO_COLOR": "1", **own}
        found |= {"KUBECONFIG": str(clone / "none")}
        return subprocess.run(command, cwd=clone, env=found, check=False, capture_output=True, text=True)

    def paddle_aws(*words: str) -> subprocess.CompletedProcess[str]:
        return run("paddle-aws", *words)

    def fix(wrong: str, right: str) -> None:
        train = clone / "my_program" / "train.py"
        assert wrong in train.read_text()
        train.write_text(train.read_text().replace(wrong, right))

    # The first mistake, a name, and the second, a value that its input cannot take: each in one sentence, with its line.
    tried = paddle_aws("try", "job.yaml")
    assert (tried.returncode, len(tried.stderr.splitlines())) == (2, 1), tried.stderr
    assert "square_eror_cost" in tried.stderr and "train.py:22" in tried.stderr
    fix("eror", "error")
    tried = paddle_aws("try", "job.yaml")
    assert (tried.returncode, len(tried.stderr.splitlines())) == (2, 1), tried.stderr
    assert re.search(r"train\.py:12: `district` got int \d: `fleet\.ids` wants a list of ints", tried.stderr)
    fix('"district": district', '"district": [district]')
    tried = paddle_aws("try", "job.yaml")
    assert tried.returncode == 0 and "loss" in tried.stdout, tried.stdout + tried.stderr

    rehearsed = run("make", "rehearse", "JOB=job.yaml")
    assert rehearsed.returncode == 0, rehearsed.stdout + rehearsed.stderr
    assert "`paddle-aws results flats --model` fetches the model" in rehearsed.stdout

    looked = paddle_aws("status", "--rehearsal")
    assert looked.returncode == 0 and "flats is done" in looked.stdout, looked.stderr
    measured = paddle_aws("evaluate", "--rehearsal")
    assert measured.returncode == 0, measured.stderr
    found = re.search(r"^rmse ([\d.]+) of pass 11.*\n.*: ([\d.]+)$", measured.stdout, re.M)
    assert found and float(found[1]) < float(found[2]) / 2, measured.stdout

    fetched = paddle_aws("results", "--model", "--to", "models")
    assert fetched.returncode == 0, fetched.stderr
    assert len(fetched.stdout.splitlines()) == 5 and "paddle_node" not in fetched.stdout
    assert rehearsed.stdout.endswith(fetched.stdout)
    plain = [clone / ".venv-image" / "bin" / "python", "-c", fetched.stdout]
    predicted = subprocess.run(plain, cwd=clone / "models" / "model", env={}, check=False, capture_output=True, text=True)
    assert re.fullmatch(r"\[\[ ?-?\d+\.\d*(e[-+]\d+)?\]\]\n", predicted.stdout), predicted.stdout + predicted.stderr

    # A mistake costs a sentence, and not the model.
    fix("import paddle\n", "import paddle(\n")
    wrong = run("make", "rehearse", "JOB=job.yaml")
    assert wrong.returncode == 2 and "SyntaxError" in wrong.stdout + wrong.stderr
    assert "flats is done" in paddle_aws("status", "--rehearsal").stdout
