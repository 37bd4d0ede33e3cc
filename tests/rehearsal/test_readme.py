"""README's commands run as printed and in order: first those for one machine, then those for AWS.

What is real: make, cdk, paddle-aws, the emulated account, the pods' programs, the model that is
fetched. Limits: see readme.sh and kubelet.py; docker is tests/image's stand-in.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path += [
    str(Path(__file__).parent),
    *(str(Path(__file__).parents[1] / room) for room in ("operations", "image")),
]

from kubelet import Kubelet
from test_build_and_push import ENGINE
from test_cost import DATA, SERVICES, PriceFiles
from test_lock_distribution import DATA as K3S
from test_lock_distribution import Publisher

from paddle_aws.rehearsal.cloud import Cloud
from paddle_aws.rehearsal.deployed_account import pod_identity
from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_settings.file import cache_path

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def blocks(section: str, language: str) -> list[str]:
    """Returns the code blocks in a language of a section of README."""
    text = (ROOT / "README.md").read_text().split(f"\n## {section}")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


class Shell:
    """Runs blocks in one folder with one environment; a command that fails ends its block. Its home
    is empty but for what the machine has: the environments of `make rehearse`, and jsii's packages.
    """

    def __init__(self, folder: Path, home: Path, **environment: str) -> None:
        for cache in (cache_path("environments").parent, Path.home() / ".cache/aws/jsii"):
            cache.mkdir(parents=True, exist_ok=True)
            link = home / ".cache" / cache.parent.name / cache.name
            link.parent.mkdir(parents=True)
            link.symlink_to(cache)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "CDK_", "KUBE"))
        }
        own = {
            "HOME": str(home),
            "NO_COLOR": "1",
            "BASH_ENV": str(HERE / "readme.sh"),
            "CDK_NOTICES": "false",
            "CDK_CI": "true",
        }
        self.folder, self._environment = folder, kept | own | environment

    def start(self, block: str) -> subprocess.Popen[str]:
        script = (
            "set -euo pipefail; trap 'echo failed: $BASH_COMMAND' ERR\n. .venv/bin/activate\n"
            f"{block}"
        )
        pipes: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        return subprocess.Popen(
            ["bash", "-c", script], cwd=self.folder, env=self._environment, text=True, **pipes
        )

    def run(self, block: str, running: subprocess.Popen[str] | None = None) -> str:
        """Runs a block, or waits for `running` if it was started before. Returns the output."""
        process = running or self.start(block)
        said, _ = process.communicate()
        assert process.returncode == 0, f"{block}\nended with {process.returncode}:\n{said}"
        return said

    def set(self, wrong: str, right: str) -> None:
        """Changes job.yaml as README says."""
        job = self.folder / "job.yaml"
        assert wrong in job.read_text()
        job.write_text(job.read_text().replace(wrong, right))


def test_those_for_one_machine(make_clone, tmp_path: Path) -> None:
    shell = Shell(make_clone("one-machine").folder, tmp_path / "home")
    (rehearse,) = blocks("Try it", "sh")
    shell.set("passes: 5", "passes: 20")
    (kill,) = re.findall(r"`(pkill [^`]+)`", (ROOT / "README.md").read_text())
    rehearsal = shell.start(rehearse)
    complete = shell.folder / ".rehearsal/volume/quick-start/output/pass-00003/done"
    while not complete.exists() and rehearsal.poll() is None:
        time.sleep(0.05)
    shell.run(kill)
    said = shell.run(rehearse, rehearsal)
    assert "20 passes by 3 trainers" in said and "the inventory is as before" in said
    again = (shell.folder / ".rehearsal/volume/quick-start/output/node_0/train.log").read_text()
    assert "attempt 2" in again, "the killed pod's peers resume with it"

    (repository,) = blocks("Your repository", "sh")
    *own, launch = repository.splitlines()
    said = shell.run("\n".join(own))
    assert "quick-start is done" in said and (shell.folder / "models" / "model").is_dir()
    # A mistake costs a sentence, and not the model.
    train = shell.folder / "examples" / "quick_start" / "train.py"
    train.write_text(f"import paddle(\n{train.read_text()}")
    broken = shell.run(
        "! make rehearse JOB=job.yaml; paddle-aws status --rehearsal; paddle-aws evaluate "
        "--rehearsal"
    )
    assert (
        "SyntaxError" in broken
        and "quick-start is done" in broken
        and re.search(r"^accuracy [\d.]+ of pass", broken, re.M)
    )
    launch = shell.run(launch)
    assert (
        "one copy that all pods read" in launch
        and "2 pods with 2 processes each ran to their end" in launch
    )
    assert re.search(r'printed.*"accuracy": [\d.]+', launch, re.DOTALL), launch
    output = shell.folder / ".rehearsal/volume/launch/output"
    assert json.loads((output / "result.json").read_text())["accuracy"] > 0.9
    epochs = map(json.loads, (output / "epochs.jsonl").read_text().splitlines())
    counted = [(one["records"], one["least"], one["most"], one["ranks"]) for one in epochs]
    assert counted == [(1600, 1, 1, 4)] * 40, (
        "each of four processes trained each record once an epoch"
    )


@pytest.fixture
def on_aws(make_clone, tmp_path: Path) -> Iterator[Shell]:
    clone, engine = make_clone("on-aws", validate=True).folder, tmp_path / "bin" / "docker"
    engine.parent.mkdir()
    engine.write_text(ENGINE.format(python=sys.executable))
    engine.chmod(0o755)

    def identity(namespace: str, service_account: str) -> Mapping[str, str]:
        outputs = json.loads((clone / "outputs.json").read_text())
        (cluster,) = (stack["ClusterName"] for stack in outputs.values() if "ClusterName" in stack)
        return pod_identity(cloud, cluster)(namespace, service_account)

    with (
        Cloud(clone, tmp_path / "cloud") as cloud,
        RehearsalFolder(tmp_path / "state") as folder,
        Kubelet(clone, folder, identity) as cluster,
        PriceFiles() as prices,
        Publisher(K3S["values"], {}) as k3s,
    ):
        folder.begin()
        for service in SERVICES:
            prices.offer(service, DATA["machines"] if service == "AmazonEC2" else [])
        stand_ins = {"KUBERNETES": cluster.url, "PRICES": prices.url, "K3S": k3s.url}
        docker = {
            "ALIVE": "docker",
            "CALLS": str(tmp_path / "calls"),
            "PATH": f"{engine.parent}{os.pathsep}{os.environ['PATH']}",
        }
        yield Shell(clone, tmp_path / "home", **cloud.environment, **stand_ins, **docker)


@pytest.mark.long
def test_those_for_aws(on_aws: Shell) -> None:
    deploy, submit, back = blocks("On AWS", "sh")
    page = (ROOT / "docs/do/submit.md").read_text()
    (python,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert "NAT gateway" in on_aws.run(deploy)
    said = on_aws.run(submit)
    found = re.search(r"^accuracy ([\d.]+) of pass 4.*\nalways guessing \w+: ([\d.]+)$", said, re.M)
    assert found and float(found[1]) > float(found[2]) + 0.2, said
    assert "nothing was left to do: the job is done" in said, "what `resume` finds"
    assert (on_aws.folder / "models" / "model").is_dir()
    on_aws.set("name: quick-start", "name: from-python")
    said = on_aws.run(f"PYTHONPATH=$PWD:$PWD/trainer_image python - <<'END'\n{python}END")
    assert "pass" in said, said
    said = on_aws.run(back)
    assert (
        "is left in us-west-2 but what is kept on purpose" in said
        and "it waits for its deletion" in said
    )
    assert "USD in a run of 3 h" in on_aws.run("paddle-aws cost --hours 3")
    assert "k3s v1.36" in on_aws.run("paddle-aws lock distribution")
