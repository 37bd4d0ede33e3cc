"""`paddle-aws acceptance` as the first person with an account types it, against the emulator: by an
Identity Center administrator, with the rights that the templates gave.

What is real: the command and those that it runs, cdk, the policies, the cluster's door, the pods'
programs, the killed pod. Limits: those of test_first_day.py and of the tests' kubelet; docker is
tests/image's stand-in; prices are a test's.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path += [str(Path(__file__).parents[1] / room) for room in ("rehearsal", "operations", "image")]

from kubelet import Kubelet
from test_build_and_push import ENGINE

from paddle_aws.operations.account.cost_items import HOURS, estimate, items
from paddle_aws.operations.account.person import Person
from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.jobs import acceptance
from paddle_aws.rehearsal.cloud import ACCOUNT
from paddle_aws.rehearsal.deployed_account import pod_identity
from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.stacks.cluster_spec import ClusterSpec

from .test_first_day import PROJECT, Day, Tokens, begin, behind_tls

pytestmark = pytest.mark.slow

PROGRAM = ("-m", "paddle_aws.operations.main")
AT_ONCE = (
    "-c",
    "from paddle_aws.operations.jobs import acceptance\n"
    "acceptance.LEAST = acceptance.TO_DESTROY = 0\n"
    "from paddle_aws.operations.main import main; main()",
)
"""The command with a cap that may be smaller than the hour and a half that AWS takes."""
WITHOUT_AN_ACCOUNT = """
import sys
from pathlib import Path
from paddle_aws.operations.account.person import Person
from paddle_aws.operations.jobs.acceptance import Acceptance, logged, settings
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import load_cluster
folder, log = map(Path, sys.argv[1:])
it = Acceptance.__new__(Acceptance)
it.folder, it._config, it.why = folder, folder / "cluster.yaml", ""
it._config.write_text(str(settings("us-west-2", "203.0.113.7/32", gpu=False)))
it._spec = load_cluster(it._config)
it._an_hour, it._max_usd, it._caller, it._prices = 0.5, 5.0, "assumed-role/Admin/me", {}
it._steps, it._paid_from, it._had_bootstrap = [], 1.0, False
with logged(log) as report:
    it.person = Person(Path.cwd(), folder, report)
    def step(name, then="true"):
        line = f"trap '' HUP; echo {name}; touch {folder}/{name}; {then}"
        return lambda *_: it.person._run(name, ["bash", "-c", line]) and {}
    it._work = lambda: {"deploy": step("deploy", f"sleep 60; touch {folder}/deployed")}
    it.person.destroy = step("destroy", "sleep 1; echo; echo destroyed")
    it._leftovers = step("leftovers", "echo seen; exit 3")
    it._end_bootstrap = step("no-bootstrap")
    it.run(say)
say(it.why)
"""
"""Acceptance.run with steps that are a shell's."""
RECEIPT = PROJECT / "docs" / "receipts" / "emulator.json"
PRIVATE = re.compile(
    rf"{ACCOUNT}|\b\d{{12}}\b|arn:|AdministratorAccess|me-myself|203\.0\.113|/home/|/tmp/"
)
"""What no receipt may hold: account numbers, names of people and roles, addresses, folders."""


class Account:
    """One account, a cluster whose pods run, and an administrator."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        state = stack.enter_context(RehearsalFolder(folder / "pods"))
        state.begin()
        kubelet = Kubelet(PROJECT, state, self._identity)
        stack.enter_context(behind_tls(kubelet, folder))
        self.day: Day = stack.enter_context(begin(kubelet, folder / "state"))
        kubelet.tokens = Tokens(self.day, acceptance.NAME)
        engine = folder / "bin" / "docker"
        engine.parent.mkdir()
        engine.write_text(ENGINE.format(python=sys.executable))
        engine.chmod(0o755)
        self.prices(dollars="0.1")
        path = os.pathsep.join([str(engine.parent), str(Path(__file__).parent / "tools")])
        self.environment = {
            **self.day._environ(),
            **self.day.environment,
            **self.day.identity_center_administrator(),
            "PATH": f"{path}{os.pathsep}{self.day._environ()['PATH']}",
            "ALIVE": "docker",
            "CALLS": str(folder / "calls"),
            "CDK_VALIDATION": "false",
        }
        self.before = self.day.inventory()

    def _identity(self, namespace: str, account: str) -> Mapping[str, str]:
        return pod_identity(self.day, acceptance.NAME)(namespace, account)

    def prices(self, dollars: str) -> None:
        settings = acceptance.settings("us-west-2", "203.0.113.7/32", gpu=True)
        prices = {item.price: {"usd": dollars} for item in items(ClusterSpec(**settings))}
        document = {"read": "2026-11-29", "source": "the test's own", "region": "us-west-2"}
        (self.folder / "prices.json").write_text(json.dumps({**document, "prices": prices}))

    def dollars(self, seconds: float) -> float:
        """What the cluster costs in so many seconds."""
        spec = ClusterSpec(**acceptance.settings("us-west-2", "203.0.113.7/32", gpu=False))
        prices = json.loads((self.folder / "prices.json").read_text())["prices"]
        dollars = {name: price["usd"] for name, price in prices.items()}
        month = float(sum(row["month_usd"] for row in estimate(items(spec), dollars, 1)))
        return month / HOURS * seconds / 3600

    def start(
        self, *options: str, folder: str = "mine", program: tuple[str, ...] = PROGRAM
    ) -> subprocess.Popen[str]:
        words = [sys.executable, *program, "acceptance", *options]
        files = {"--folder": self.folder / folder, "--lock": self.folder / "prices.json"}
        words += [str(word) for pair in files.items() for word in pair]
        return subprocess.Popen(
            [*words, "--from", "203.0.113.7/32"],
            cwd=PROJECT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def receipt(self) -> dict[str, Any]:
        text = (self.folder / "mine" / "receipt.json").read_text()
        assert not (found := PRIVATE.search(text)), found
        return json.loads(text)

    def left(self) -> set[tuple[str, str]]:
        """What is left, but for AWS's own default VPC of a region in which `doctor` asks."""
        left = self.day.inventory() - self.before
        return {(one.service, one.type) for one in left if not one.id.endswith("(us-east-1)")}


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with ExitStack() as stack:
        yield Account(tmp_path, stack)


def test_it_trains_through_a_killed_pod_and_leaves_nothing(account: Account) -> None:
    """UPDATE_GOLDEN=1 pytest tests/emulator/test_acceptance.py writes the page's receipt."""
    process = account.start()
    said, _ = process.communicate()
    assert process.returncode == 0, said + log(account)
    assert account.left() == set()
    settings = (account.folder / "mine" / "cluster.yaml").read_text()
    assert settings.endswith(f"account: '{ACCOUNT}'\n")
    receipt = account.receipt
    saw = {step["step"]: step["saw"] for step in receipt["steps"]}
    assert saw["train on"]["attempts"] > 1 and saw["train on"]["passes"] == acceptance.PASSES
    assert saw["measure"]["accuracy"] > saw["measure"]["baseline"] + 0.2
    hours = receipt["seconds"] / 3600
    assert 0 < receipt["usd"]["spent"] <= receipt["usd"]["an_hour"] * hours
    if os.environ.get("UPDATE_GOLDEN"):
        RECEIPT.write_text(json.dumps(receipt, indent=1) + "\n")
    names = [step["step"] for step in json.loads(RECEIPT.read_text())["steps"]]
    assert list(saw) == names
    assert not PRIVATE.search(RECEIPT.read_text())


def test_what_it_refuses_costs_nothing(account: Account) -> None:
    api = account.day.client("cloudformation")
    resources = {"Thing": {"Type": "AWS::SNS::Topic"}}
    body = json.dumps({"Resources": resources})
    for options, sentence in (
        (
            ("--max-usd", "2000"),
            r"--max-usd is 2000: allowed is [\d.]+ to 1000, because the cluster",
        ),
        (("--max-usd", "0.01"), r"--max-usd is 0.01: allowed is"),
        (("--gpu",), r"--gpu and --base belong together"),
        (("--region", "nowhere"), r"region"),
        ((), r"acceptance-access of us-west-2 belong to an acceptance that runs, or was killed"),
    ):
        if not options:
            api.create_stack(StackName="acceptance-access", TemplateBody=body)
        process = account.start(*options)
        said, _ = process.communicate()
        assert process.returncode == 2 and re.search(sentence, said), said
        assert not (account.folder / "mine").exists()
    path = account.environment["PATH"]
    tools = account.folder / "tools"
    tools.mkdir()
    for engine, sentence in (
        (False, "neither docker nor podman answers"),
        (True, "the aws CLI is not on PATH"),
    ):
        if engine:
            (tools / "docker").symlink_to(account.folder / "bin" / "docker")
        account.environment["PATH"] = str(tools)
        process = account.start()
        said, _ = process.communicate()
        assert process.returncode == 2 and said.startswith(sentence), said
        assert said.count("\n") == 1 and not (account.folder / "mine").exists()
    account.environment["PATH"] = path
    process = account.start(folder="state")
    said, _ = process.communicate()
    assert process.returncode == 2 and "is there already: name a new folder" in said
    assert [stack["StackName"] for stack in api.describe_stacks()["Stacks"]] == [
        "acceptance-access"
    ]


def log(account: Account) -> str:
    file = account.folder / "mine" / "log.txt"
    return file.read_text()[-3000:] if file.exists() else ""


def test_ctrl_c_destroys_what_is_there(account: Account) -> None:
    process = account.start()
    while "acceptance-storage" not in log(account) and process.poll() is None:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    process.send_signal(signal.SIGINT)  # A second one does not keep it from destroying.
    said, _ = process.communicate()
    assert process.returncode == 130, said + log(account)
    receipt = account.receipt
    assert receipt["result"] == "interrupted"
    assert [step["step"] for step in receipt["steps"] if "failed" in step] == ["deploy"]
    assert account.left() == set()


@pytest.mark.long
def test_at_the_cap_it_destroys_what_is_there(account: Account) -> None:
    process = account.start("--max-usd", f"{account.dollars(seconds=2):.9f}", program=AT_ONCE)
    said, _ = process.communicate()
    assert process.returncode == 1 and "its share is spent" in said, said + log(account)
    receipt = account.receipt
    assert receipt["result"] == "stopped"
    assert [step["step"] for step in receipt["steps"] if "failed" in step] == ["deploy"]
    assert [step["step"] for step in receipt["steps"]][-3:] == [
        "destroy", "leftovers", "no bootstrap"
    ]  # fmt: skip
    assert account.left() == set()


def test_what_another_made_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Person: a command would be an AttributeError."""
    one = acceptance.Acceptance.__new__(acceptance.Acceptance)
    one._had_bootstrap, one._paid_from = True, None
    assert one._bootstrap() == {"was": "there"}
    one._had_bootstrap = False
    one._spec = ClusterSpec(**acceptance.settings("us-west-2", "203.0.113.7/32", gpu=False))
    stacks = [{"StackName": "acceptance-access"}]
    monkeypatch.setattr(acceptance.ClusterAccount, "deployed_stacks", stacks)
    with pytest.raises(BadInput, match="acceptance-access of us-west-2 belong to an acceptance"):
        one._deploy()
    assert not one._end()


@pytest.mark.parametrize("where", ["closed pipe", "full disk"])
def test_nothing_that_prints_or_interrupts_keeps_it_from_destroying(
    tmp_path: Path, where: str
) -> None:
    """Two signals at once, a third while it destroys; nobody reads, or no disk takes a line."""
    full, (reads, writes) = where == "full disk", os.pipe()
    if full:
        (tmp_path / "receipt.json").symlink_to("/dev/full")
    log_file = "/dev/full" if full else str(tmp_path / "log.txt")
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_AN_ACCOUNT, str(tmp_path), log_file],
        cwd=PROJECT,
        stderr=subprocess.PIPE if full else writes,
        text=True,
    )
    os.close(writes)
    appears(tmp_path / "deploy", process)
    os.close(reads)
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):
        process.send_signal(number)
    appears(tmp_path / "destroy", process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    # What fails after the destroy does not keep the bootstrap.
    assert (tmp_path / "no-bootstrap").exists() and not (tmp_path / "deployed").exists()
    if full:
        assert "no receipt was written" in said, said
        assert said.count("cdk destroy --all --context config=/") == 2, said  # First and last.
        assert re.search(r"then delete CDKToolkit-\S+ and its bucket", said)
        return
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    steps = {step["step"]: step.get("failed") for step in receipt["steps"]}
    assert steps == {
        "deploy": "KeyboardInterrupt",
        "destroy": None,
        "leftovers": "leftovers failed with code 3:",
        "no bootstrap": None,
    }
    assert "seen" not in receipt["why"]


def appears(file: Path, process: subprocess.Popen[str]) -> None:
    while not file.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("text", "published"),
    [
        (
            "arn:aws:iam::111122223333:role/CorpBoundary, denied by "
            "arn:aws-cn:organizations::999988887777:policy/o-abc/p-xyz",
            "ARN, denied by ARN",
        ),
        ("https://0A1B.gr7.us-west-2.eks.amazonaws.com/api refused", "https://HOST refused"),
        ("111122223333.dkr.ecr.us-west-2.amazonaws.com/corp:1", "HOST"),
        ("no route to 2001:db8:85a3::8a2e:370:7334", "no route to ADDRESS"),
        ("fe80::1/64, ip-10-0-12-1 and 10.0.12.1:443", "ADDRESS/64, ip-ADDRESS and ADDRESS:443"),
        ("/tmp/tmpab12/x, ~/corp/y, file:///srv/z", "PATH, PATH, PATH"),
        ("config=/srv/alice/a.yaml:3 and/or ./b", "config=PATH:3 and/or ./b"),
        ("/data/alice/acc/models/m and /opt/clone/cdk.json", "FOLDER/models/m and ./cdk.json"),
        ("ME@corp.com, bob@mail.corp.com", "EMAIL, EMAIL"),
        ("User: Me of Admin in 111122223333", "User: CALLER of CALLER in ACCOUNT"),
        ("AWS::S3::Bucket at 2026-11-29T02:10:29", "AWS::S3::Bucket at 2026-11-29T02:10:29"),
    ],
)
def test_a_receipt_names_nobody(text: str, published: str) -> None:
    one = acceptance.Acceptance.__new__(acceptance.Acceptance)
    one.folder, one._caller = Path("/data/alice/acc"), "assumed-role/Admin/me"
    one.person = Person(Path("/opt/clone"), Path("/data"))
    assert one._anonymous(text) == published
