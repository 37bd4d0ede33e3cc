"""`bootstrap`: what it asks cdk for."""

import os
from pathlib import Path
from typing import Any

import pytest
from commands import Run

ACCOUNT = "000000000000"


@pytest.fixture
def cdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which a `cdk` on PATH writes its arguments."""
    arguments, program = tmp_path / "arguments", tmp_path / "bin" / "cdk"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {arguments}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return arguments


def test_pipelines_of_other_accounts_may_deploy(
    run: Run, aws_api: Any, cdk: Path, folder: Path
) -> None:
    aws_api.answer(
        "sts", "GetCallerIdentity", {"Arn": f"arn:aws:iam::{ACCOUNT}:user/a", "Account": ACCOUNT}
    )
    (folder / "cluster.yaml").write_text("name: ml\nretain: false\n")
    aws_api.refuse("cloudformation", "DescribeStacks", "ValidationError")
    assert run("bootstrap", "--trust", f"{'1' * 12},{'2' * 12}").code == 0
    words = cdk.read_text()
    assert f"aws://{ACCOUNT}/us-west-2 --qualifier ml" in words
    assert f"--trust {'1' * 12} --trust {'2' * 12} " in words
    # cdk would put a later one in the place of these.
    stack = {
        "StackName": "CDKToolkit-ml",
        "StackStatus": "CREATE_COMPLETE",
        "CreationTime": "2026-11-21T00:00:00Z",
        "Parameters": [
            {"ParameterKey": "TrustedAccounts", "ParameterValue": f"{'1' * 12},{'2' * 12}"}
        ],
    }
    aws_api.answer("cloudformation", "DescribeStacks", {"Stacks": [stack]})
    assert run("bootstrap", "--trust", "3" * 12).code == 0
    trusted = [word for word in cdk.read_text().split() if word.isdigit()]
    assert trusted == ["1" * 12, "2" * 12, "3" * 12]


def test_an_organizations_boundary_holds_for_the_bootstraps_roles(
    run: Run, aws_api: Any, cdk: Path, folder: Path
) -> None:
    aws_api.answer(
        "sts", "GetCallerIdentity", {"Arn": f"arn:aws:iam::{ACCOUNT}:user/a", "Account": ACCOUNT}
    )
    (folder / "cluster.yaml").write_text("name: ml\nretain: false\n")
    assert run("bootstrap", "--permissions-boundary", "Corp").code == 0
    said = "--custom-permissions-boundary Corp --apply-permissions-boundary-to-all-roles"
    assert said in cdk.read_text()
    (folder / "cluster.yaml").write_text("name: ml\nretain: false\ndeployer: restricted\n")
    done = run("bootstrap", "--permissions-boundary", "Corp")
    assert done.code == 2 and "--permissions-boundary is Corp and deployer is rest" in done.err


@pytest.mark.parametrize(
    ("settings", "trust", "sentence"),
    [
        ("", "12345", "--trust is 12345: allowed are account numbers of 12 digits"),
        ("bootstrap_qualifier: corp\n", "1" * 12, "bootstrap_qualifier is corp: whoever made"),
    ],
)
def test_what_cannot_be_bootstrapped_is_refused(
    run: Run, aws_api: Any, cdk: Path, folder: Path, settings: str, trust: str, sentence: str
) -> None:
    (folder / "cluster.yaml").write_text(f"name: ml\nretain: false\n{settings}")
    done = run("bootstrap", "--trust", trust)
    assert done.code == 2 and sentence in done.err
    assert not cdk.exists() and not aws_api.requests


def test_another_accounts_credentials_stop_a_command(
    run: Run, aws_api: Any, cdk: Path, folder: Path
) -> None:
    aws_api.answer(
        "sts", "GetCallerIdentity", {"Arn": f"arn:aws:iam::{ACCOUNT}:user/a", "Account": ACCOUNT}
    )
    (folder / "cluster.yaml").write_text(f'name: ml\nretain: false\naccount: "{"1" * 12}"\n')
    for command in ("bootstrap", "diff", "doctor", "kubeconfig", "leftovers", "protect"):
        done = run(command)
        assert done.code == 2, command
        assert f"account is {'1' * 12}, and these credentials are of {ACCOUNT}" in done.err
    assert not cdk.exists()


def test_commands_take_an_organizations_own_settings(
    run: Run, aws_api: Any, cdk: Path, folder: Path
) -> None:
    (folder / "org_settings.py").write_text(
        "from paddle_settings.model import Refused\n"
        "from paddle_aws.stacks.cluster_spec import ClusterSpec\n"
        "class OrgSpec(ClusterSpec):\n"
        "    cost_center: str\n"
        "    def _faults(self):\n"
        "        yield from super()._faults()\n"
        "        if not self.retain:\n"
        '            yield Refused("retain", False, "we keep data")\n'
    )
    (folder / "cdk.json").write_text(
        '{"app": "", "context": {"paddle-aws:cluster-spec": "org_settings:OrgSpec"}}'
    )
    (folder / "cluster.yaml").write_text("name: ml\nretain: false\ncost_center: a7\n")
    done = run("bootstrap")
    assert (done.code, done.err) == (2, "cluster.yaml: retain is false: we keep data\n")
    (folder / "cdk.json").write_text('{"context": {"paddle-aws:cluster-spec": "os:path"}}')
    done = run("bootstrap")
    assert done.code == 2 and "is os:path: allowed is a subclass of ClusterSpec" in done.err
