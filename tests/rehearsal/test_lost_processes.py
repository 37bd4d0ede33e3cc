"""A process that is killed during training, from the shipped manifests on real Paddle: recovery or failure, never less."""

import asyncio
import copy
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace as Trained

import pytest
import yaml
from paddle_node.contract import JobFolder

from operations.commands.evaluate import Evaluation
from operations.errors import Failed
from rehearsal.evaluation import evaluate
from rehearsal.pods import manifests
from rehearsal.pods.addresses import AddressBlock
from rehearsal.pods.job import run_job
from rehearsal.state import State

from .conftest import processes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def shipped(passes: int) -> list[dict]:
    """The shipped job's golden manifests, with a source that needs no bucket."""
    documents = copy.deepcopy(list(yaml.safe_load_all((ROOT / "tests/charts/golden/job.yaml").read_text())))
    for document in documents:
        if document["kind"] == "Job":
            for entry in document["spec"]["template"]["spec"]["containers"][0]["env"]:
                if entry["name"] == "DATA_SOURCE":
                    entry["value"] = "/home/jobpath/quick-start/sample.tsv"
        if document["kind"] == "ConfigMap":
            document["data"]["PADDLE_NODE_PASSES"] = str(passes)
    return documents


def train(folder: Path, passes: int = 4, kill: str | None = None) -> Trained:
    """Split and train below `folder`; `kill` is the role whose process of trainer 1 dies once a pass is complete."""
    state = State(folder)
    volume = state.volume
    sample = volume / "quick-start/sample.tsv"
    sample.parent.mkdir(parents=True)
    subprocess.run([sys.executable, ROOT / "examples/quick_start/make_sample.py", sample], check=True)
    documents = shipped(passes)
    read = manifests.read(documents)
    host = state.host(ROOT, read, ROOT / ".venv-image" / "bin")
    data, training = read.jobs
    job_folder = JobFolder(volume / "quick-start")

    async def kill_when_a_pass_is_complete(role: str) -> None:
        while not (job_folder.done(0).exists() and (pid := process_of(folder, role))):
            await asyncio.sleep(0.02)
        os.kill(pid, signal.SIGKILL)

    async def go() -> Trained:
        with AddressBlock() as addresses:
            assert (await run_job(data, host, addresses)).succeeded
            killer = asyncio.create_task(kill_when_a_pass_is_complete(kill)) if kill else None
            result = await asyncio.wait_for(run_job(training, host, addresses), 400)
            assert killer is None or killer.done()
            measured = (await evaluate(documents, host, addresses))[0] if result.succeeded else None
            return Trained(host=host, result=result, folder=job_folder, evaluation=measured)

    return asyncio.run(go())


def process_of(folder: Path, role: str) -> int | None:
    """Trainer 1's process of that role, by what its command line names."""
    wanted = {
        "trainer": b"paddle_node.training.loop",
        "pserver": b"paddle_node.fleet\0paddle_node.training.backends.parameter_servers",
        "agent": b"start_paddle.py",
    }[role]
    own = f"PADDLE_NODE_ROOT={folder}".encode()
    for number, variables, command in processes():
        ours = own in variables and b"JOB_COMPLETION_INDEX=1" in variables.split(b"\0")
        if ours and wanted in command and b"container_init" not in command:
            return number
    return None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Trained:
    return train(tmp_path_factory.mktemp("undisturbed"))


def losses(trained: Trained) -> list[float]:
    """Of the passes that count, the mean of all trainers: each one's own depends on who was ahead in the pass."""
    files = [trained.folder.metrics(trainer).read_text().splitlines() for trainer in range(3)]
    found = [{line["pass"]: line["loss"] for line in map(json.loads, lines)} for lines in files]
    return [statistics.mean(each[number] for each in found) for number in sorted(found[0])]


@pytest.mark.parametrize("role", ["trainer", "pserver", "agent"])
def test_a_killed_process_ends_in_recovery_or_failure(tmp_path, undisturbed, role):
    trained = train(tmp_path, kill=role)
    # Not even the agent's end costs a pod: its container starts again in place.
    assert {end.name.rpartition("-")[0][-1] for end in trained.result.ended} == {"0", "1", "2"} and len(trained.result.ended) == 3
    assert trained.result.retries == 0
    restarts = [log for log in trained.host.logs.glob("*.trainer.log") if "started again in its pod" in log.read_text()]
    assert len(restarts) == (role == "agent")
    if not trained.result.succeeded:
        return
    assert trained.evaluation is not None and undisturbed.evaluation is not None
    assert trained.evaluation.number == undisturbed.evaluation.number == 3
    assert trained.evaluation.value >= undisturbed.evaluation.value - 0.08
    assert losses(trained)[-1] < 1.3 * losses(undisturbed)[-1]


def test_the_metric_needs_every_part_of_the_pass(undisturbed):
    """Deleting any pserver's part makes the evaluation fail: it loads the pass, the whole pass and nothing else."""
    last = undisturbed.folder.pass_dir(3)
    parts = sorted(last.rglob("part-*"))
    assert {int(part.name.split("-")[1].split(".")[0]) for part in parts} == {0, 1, 2}
    one_of_each = {part.name.split("-")[1].split(".")[0]: part for part in parts}
    for part in one_of_each.values():
        kept = part.with_name(f".{part.name}.kept")
        shutil.move(part, kept)
        with pytest.raises(Failed) as failed:
            measure(undisturbed)
        assert part.name in str(failed.value) and "Traceback" not in str(failed.value)
        shutil.move(kept, part)
    assert measure(undisturbed).value == undisturbed.evaluation.value


def measure(trained: Trained) -> Evaluation:
    async def go() -> Evaluation:
        with AddressBlock() as addresses:
            return (await evaluate(shipped(4), trained.host, addresses))[0]

    return asyncio.run(go())
