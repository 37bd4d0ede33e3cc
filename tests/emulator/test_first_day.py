"""The first day on AWS: the commands of docs/learn/first-day-on-aws.md, by the people whom it is
for, each with the rights that the templates gave.

The account decides by the policies. Behind the cluster's door stands the tests' Kubernetes API: it
admits whom the emulator's STS knows and the template's access entries name, and lets everybody do
everything inside (what RBAC allows: `make test-cluster`). mutants/ are faults of policies, trust,
access entries and memberships: the day finds each.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError

sys.path.append(str(Path(__file__).parents[1] / "operations"))

from kubernetes_api import KubernetesApi

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.cloud import ACCOUNT, Cloud, CloudError
from paddle_aws.rehearsal.deployed_account import pod_identity
from paddle_settings.shared_names import DATA_ACCOUNT

from .conftest import PARTS
from .test_variants import Account

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl"),
]

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "learn" / "first-day-on-aws.md"
MUTANTS = sorted((Path(__file__).parent / "mutants").glob("*.yaml"))
ADMINISTRATOR = "arn:aws:iam::aws:policy/AdministratorAccess"
ELSEWHERE = {
    ". .venv/bin/activate": "a shell's own",
    "paddle-aws lock prices": "reads AWS's price lists: tests/operations/test_cost.py",
    "paddle-aws cost --hours 3": "tests/operations/test_cost.py",
    "make image push": "tests/emulator/test_acceptance.py, with a stand-in for docker",
    "paddle-aws submit --follow": "needs pods: tests/emulator/test_acceptance.py, with these roles",
    "paddle-aws status": "tests/operations/test_looking.py",
    "paddle-aws board": "tests/operations/test_board.py",
    "paddle-aws results --model --to models": "tests/emulator/test_acceptance.py",
}
"""The page's commands that this test does not run, and why or where they are run."""
RUN = (
    "paddle-aws bootstrap",
    "paddle-aws doctor",
    "cdk deploy --all --outputs-file outputs.json --require-approval never",
    "paddle-aws kubeconfig",
    "paddle-aws setup",
    "paddle-aws doctor --destroy",
    "cdk destroy --all",
    "paddle-aws leftovers",
)
"""Those that it runs, in the page's order."""

Keys = Mapping[str, str]


class Tokens:
    """The tokens that a cluster admits: asks the emulator about each."""

    def __init__(self, cloud: Cloud, cluster: str = "paddle") -> None:
        self._cloud, self._cluster = cloud, cluster

    def __contains__(self, token: object) -> bool:
        return bool(
            self._cloud.ask("review", cluster=self._cluster, token=str(token))["authenticated"]
        )


class Day(Account):
    """An account in which one person after another works."""

    whose: Keys | None = None
    """The credentials of who works now; None: the account's first user."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **(self.whose or {})}

    @contextmanager
    def by(self, keys: Keys) -> Iterator[None]:
        before, self.whose = self.whose, keys
        try:
            yield
        finally:
            self.whose = before

    def of(self, service: str, keys: Keys) -> Any:
        session = boto3.session.Session(
            keys["AWS_ACCESS_KEY_ID"],
            keys["AWS_SECRET_ACCESS_KEY"],
            keys.get("AWS_SESSION_TOKEN"),
            self.region,
        )
        return session.client(service, endpoint_url=self.endpoint)

    def user(self, name: str, group: str | None = None) -> Keys:
        iam = self.client("iam")
        iam.create_user(UserName=name)
        if group:
            iam.add_user_to_group(GroupName=group, UserName=name)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return {
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }

    def take(self, role: str, keys: Keys) -> Keys:
        taken = self.of("sts", keys).assume_role(RoleArn=role, RoleSessionName="me-myself")
        given = taken["Credentials"]
        return {
            "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
            "AWS_SESSION_TOKEN": given["SessionToken"],
        }

    def identity_center_administrator(self) -> Keys:
        """The session of a permission set with AdministratorAccess. (On AWS its role trusts the
        Identity Center's SAML provider; here it trusts the account.)
        """
        trust = {"Effect": "Allow", "Principal": {"AWS": ACCOUNT}, "Action": "sts:AssumeRole"}
        iam = self.client("iam")
        role = iam.create_role(
            RoleName="AWSReservedSSO_AdministratorAccess_0123456789abcdef",
            Path="/aws-reserved/sso.amazonaws.com/us-west-2/",
            AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
        )["Role"]
        iam.attach_role_policy(RoleName=role["RoleName"], PolicyArn=ADMINISTRATOR)
        return self.take(role["Arn"], super().environment)

    def kubectl(self, config: Path, keys: Keys) -> str:
        """Asks the cluster for its nodes through the kubeconfig. Returns what it refused."""
        command = ["kubectl", "--kubeconfig", config, "get", "--raw", "/api/v1/nodes"]
        environment = {**os.environ, **self.environment, **keys}
        done = subprocess.run(command, env=environment, text=True, capture_output=True)
        return "" if done.returncode == 0 else done.stderr


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesApi]:
    """The tests' Kubernetes API, over TLS."""
    with behind_tls(KubernetesApi(), tmp_path_factory.mktemp("door")) as api:
        yield api


@contextmanager
def behind_tls(api: KubernetesApi, folder: Path) -> Iterator[KubernetesApi]:
    """Serves `api` over TLS; `entry` is what door.py gives clusters for it."""
    files = ["-keyout", folder / "key", "-out", folder / "certificate"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*make, *files, *names], check=True, capture_output=True)
    api.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    api.tls.load_cert_chain(folder / "certificate", folder / "key")
    with api:
        data = base64.b64encode((folder / "certificate").read_bytes()).decode()
        address = api.url.replace("http:", "https:")
        api.entry = json.dumps({"address": address, "certificate": data})
        yield api


@pytest.fixture(scope="module")
def tools() -> Iterator[str]:
    """PATH with the token's program before all others."""
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(__file__).parent / 'tools'}{os.pathsep}{before}"
    yield os.environ["PATH"]
    os.environ["PATH"] = before


def begin(door: Any, state: Path) -> Day:
    parts = [*PARTS, PARTS[0].with_name("door.py")]
    extra = {"DOOR": door.entry, "CDK_VALIDATION": "false", "KUBECONFIG": str(state / "kubeconfig")}
    extra |= {"COLUMNS": "1000"}  # The caller's, where it is set, would break sentences into lines.
    return Day(project=PROJECT, state=state, parts=parts, extra=extra)


@pytest.fixture(scope="class")
def day(door: Any, tools: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """One account for a class, and one for each test that is in none (so pytest's scope has it)."""
    with begin(door, tmp_path_factory.mktemp("day")) as started:
        door.tokens = Tokens(started)
        yield started


@pytest.fixture(scope="class")
def config(day: Day) -> Path:
    """The shipped settings, with the address that the page says to name."""
    settings = yaml.safe_load((PROJECT / "cluster.yaml").read_text())
    settings["cluster"]["public_access_from"] = ["203.0.113.7/32"]
    (day.state / "cluster.yaml").write_text(yaml.safe_dump(settings))
    return day.state / "cluster.yaml"


def page_commands() -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line.partition("#")[0].strip() for line in lines]


def test_the_page_has_the_commands_of_this_test() -> None:
    assert [command for command in page_commands() if command not in ELSEWHERE] == list(RUN)


@pytest.fixture(scope="class")
def administrator(day: Day) -> Keys:
    return day.identity_center_administrator()


@pytest.fixture(scope="class")
def deployed(day: Day, administrator: Keys, config: Path) -> dict[str, str]:
    """The page's first half, by the Identity Center's administrator. Returns the outputs."""
    with day.by(administrator):
        day.paddle_aws("bootstrap", str(config))
        found = json.loads("\n".join(doctor(day, str(config), "--json")))
        assert {f["state"] for f in found if f["check"] in ("permissions", "credentials")} == {"ok"}
        assert not [f for f in found if f["state"] == "problem"]
        day.deploy(config, day.state / "outputs.json")
        day.paddle_aws("kubeconfig", str(config))
        outputs = str(day.state / "outputs.json")
        day.paddle_aws("setup", str(config), "--outputs", outputs)
    stacks = json.loads((day.state / "outputs.json").read_text()).values()
    return {name: value for stack in stacks for name, value in stack.items()}


def doctor(day: Day, *words: str) -> list[str]:
    command = [sys.executable, "-m", "paddle_aws.operations.main", "doctor", *words]
    environment = {**day._environ(), **day.environment}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, cwd=PROJECT)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="class")
def tina(day: Day, deployed: dict[str, str]) -> Keys:
    """A member of the trainers' group."""
    return day.user("tina", deployed["TrainerGroup"])


@pytest.fixture
def steps(
    day: Day, deployed: dict[str, str], administrator: Keys, tina: Keys, config: Path
) -> dict[str, Callable[[], None]]:
    """What must work on the day, by name."""
    bucket, file = deployed["BucketName"], config.with_name("entry")

    def enter(keys: Keys, *team: str) -> None:
        file.unlink(missing_ok=True)
        with day.by(keys):
            day.paddle_aws("kubeconfig", str(config), "--file", str(file), *team)
        assert (refused := day.kubectl(file, keys)) == "", refused
        words = yaml.safe_load(file.read_text())["users"][0]["user"]["exec"]["args"]
        token = subprocess.run(
            ["aws", *words], env={**os.environ, **day.environment, **keys}, capture_output=True
        )
        status = day.ask(
            "review", cluster="paddle", token=json.loads(token.stdout)["status"]["token"]
        )
        group = {"trainer": "paddle-deployers"}.get(team[-1] if team else "", "")
        assert (group or "paddle-administrators") in status["user"]["groups"]

    def read_as_data_job() -> None:
        upload()
        keys = pod_identity(day, "paddle")("paddle", DATA_ACCOUNT)
        assert keys, "the pods of the data job get no credentials"
        day.of("s3", keys).get_object(Bucket=bucket, Key="sources/words.tsv")

    def upload() -> None:
        day.of("s3", tina).put_object(Bucket=bucket, Key="sources/words.tsv", Body=b"1")

    def take_cdk_roles() -> None:
        role = f"arn:aws:iam::{ACCOUNT}:role/cdk-paddle-deploy-role-{ACCOUNT}-us-west-2"
        deployer = day.of("cloudformation", day.take(role, administrator))
        deployer.describe_stacks(StackName="paddle-network")

    return {
        "the administrator enters the cluster": lambda: enter(administrator),
        "a trainer enters the cluster": lambda: enter(tina, "--team", "trainer"),
        "a trainer uploads data": upload,
        "the data job reads it": read_as_data_job,
        "the administrator deploys": take_cdk_roles,
    }


def fails(steps: Mapping[str, Callable[[], None]]) -> dict[str, str]:
    """Takes all steps. Returns the reasons of those that fail."""
    failed = {}
    for name, step in steps.items():
        try:
            step()
        except (AssertionError, ClientError, CloudError, BadInput) as error:
            failed[name] = str(error)
    return failed


def test_the_day(
    day: Day,
    deployed: dict[str, str],
    administrator: Keys,
    tina: Keys,
    config: Path,
    steps: dict[str, Callable[[], None]],
) -> None:
    """One test: the day's end destroys what the others need, and tests run in any order."""
    assert fails(steps) == {}
    a_member_of_the_trainers_may_no_more(day, deployed, tina, config)
    root_is_told_at_once(day, deployed, config)
    and_back_to_nothing(day, deployed, administrator, config)


def a_member_of_the_trainers_may_no_more(
    day: Day, deployed: dict[str, str], tina: Keys, config: Path
) -> None:
    s3 = day.of("s3", tina)
    with pytest.raises(ClientError, match="AccessDenied"):
        s3.put_object(Bucket=deployed["BucketName"], Key="output/model", Body=b"1")
    for role in (
        deployed["OperatorRoleArn"],
        f"arn:aws:iam::{ACCOUNT}:role/cdk-paddle-deploy-role-{ACCOUNT}-us-west-2",
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            day.take(role, tina)
    with day.by(tina):
        day.paddle_aws("kubeconfig", str(config), "--file", str(day.state / "hers"))
    assert "AccessDenied" in day.kubectl(day.state / "hers", tina)


def root_is_told_at_once(day: Day, deployed: dict[str, str], config: Path) -> None:
    root = dict(zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), day.root, strict=True))
    with day.by(root):
        with pytest.raises(BadInput, match="root, which may take no role"):
            day.paddle_aws("kubeconfig", str(config), "--file", str(day.state / "roots"))
        assert "root, which may take no role" in " ".join(doctor(day, str(config)))
    with pytest.raises(ClientError, match="may not be assumed by root"):
        day.take(deployed["OperatorRoleArn"], root)


def and_back_to_nothing(
    day: Day, deployed: dict[str, str], administrator: Keys, config: Path
) -> None:
    group = deployed["TrainerGroup"]
    with day.by(administrator):
        said = "\n".join(doctor(day, str(config), "--destroy"))
        command = f"aws iam remove-user-from-group --group-name {group} --user-name tina"
        assert command in said
        with pytest.raises(CloudError, match="must remove users from group first"):
            day.destroy(config)
        day.of("iam", administrator).remove_user_from_group(GroupName=group, UserName="tina")
        day.destroy(config)
        assert "nothing of cluster paddle is left" in "\n".join(
            day.paddle_aws("leftovers", str(config))
        )


def call(day: Day, words: str, given: Mapping[str, Any]) -> Any:
    service, operation = words.split()
    return getattr(day.client(service), operation)(**given)


@pytest.mark.long
class TestMutants:
    """The faults of mutants/, in one account: each is undone."""

    @pytest.mark.parametrize("mutant", MUTANTS, ids=lambda file: file.stem)
    def test_the_day_finds(
        self, day: Day, deployed: dict[str, str], steps: dict[str, Callable[[], None]], mutant: Path
    ) -> None:
        roles = {name: value for name, value in deployed.items() if name.endswith("RoleArn")}
        names = {name[:-3]: value.rpartition("/")[2] for name, value in roles.items()}
        associations = day.client("eks").list_pod_identity_associations(
            clusterName="paddle", serviceAccount=DATA_ACCOUNT
        )["associations"]
        association = day.client("eks").describe_pod_identity_association(
            clusterName="paddle", associationId=associations[0]["associationId"]
        )["association"]
        data = association["roleArn"].rpartition("/")[2]
        iam = day.client("iam")
        [policy] = iam.list_attached_role_policies(RoleName=data)["AttachedPolicies"]
        attached = iam.list_attached_group_policies(GroupName=deployed["TrainerGroup"])
        policies = {p["PolicyName"]: p["PolicyArn"] for p in attached["AttachedPolicies"]}
        [takes] = [arn for name, arn in policies.items() if "MayTakeRole" in name]
        [may] = [arn for name, arn in policies.items() if "TrainerPolicy" in name]
        values = {**deployed, **names, "DataRole": data, "DataPolicyArn": policy["PolicyArn"]}
        values |= {"TakesArn": takes, "TrainerPolicyArn": may, "Account": ACCOUNT}
        values |= {"AssociationId": association["associationId"]}
        values |= {"DataRoleArn": association["roleArn"]}
        case = yaml.safe_load(Template(mutant.read_text()).substitute(values))
        for words, given in case["does"].items():
            call(day, words, given)
        try:
            assert case["found_by"] in fails({case["found_by"]: steps[case["found_by"]]})
        finally:
            for words, given in case["undone_by"].items():
                call(day, words, given)
        step = steps[case["found_by"]]
        step()


def test_a_restricted_deployer(door: Any, tools: str, tmp_path: Path) -> None:
    """An administrator bootstraps and deploys first; then a member of the operators' group, which
    may only find the cluster and take its role, enters it, changes it and ends it.
    """
    settings = yaml.safe_load((PROJECT / "cluster.yaml").read_text())
    settings |= {"name": "strict", "deployer": "restricted"}
    settings["cluster"]["public_access_from"] = ["203.0.113.7/32"]
    config, outputs_file = tmp_path / "cluster.yaml", tmp_path / "outputs.json"
    config.write_text(yaml.safe_dump(settings))
    with begin(door, tmp_path) as day:
        door.tokens = Tokens(day, "strict")
        administrator = day.identity_center_administrator()
        with day.by(administrator):
            day.paddle_aws("bootstrap", str(config))
            day.deploy(config, outputs_file)
        outputs = json.loads(outputs_file.read_text())["strict-access"]
        rita = day.user("rita", outputs["OperatorGroup"])
        with day.by(rita):
            day.paddle_aws("kubeconfig", str(config), "--file", str(tmp_path / "hers"))
            with pytest.raises(CloudError):
                day.deploy(config, outputs_file)
        assert day.kubectl(tmp_path / "hers", rita) == ""
        settings["nodes"]["workers"]["max"] = 7
        config.write_text(yaml.safe_dump(settings))
        with day.by(day.take(outputs["OperatorRoleArn"], rita)):
            day.deploy(config, outputs_file)
            group = day.client("eks").list_nodegroups(clusterName="strict")["nodegroups"][0]
            command = {"clusterName": "strict", "nodegroupName": group}
            found = day.client("eks").describe_nodegroup(**command)["nodegroup"]
            assert found["scalingConfig"]["maxSize"] == 7
        day.client("iam").remove_user_from_group(
            GroupName=outputs["OperatorGroup"], UserName="rita"
        )
        with day.by(administrator):
            day.destroy(config)
