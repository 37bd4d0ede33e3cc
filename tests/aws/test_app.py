"""`cdk` with this app where nobody has logged in."""

import os
import subprocess
from pathlib import Path

import pytest

from paddle_aws.stacks import cdk_command
from paddle_aws.stacks.cdk_command import NO_CREDENTIALS

from .built import PROJECT

pytestmark = pytest.mark.slow

CDK = PROJECT / "node_modules" / ".bin" / "cdk"


def test_a_deploy_without_credentials_ends_in_one_sentence(tmp_path: Path) -> None:
    """The CDK's own speaks of stacks that are not configured (valheim-ecs-fargate-cdk#24)."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))
    }
    nowhere = str(tmp_path / "none")
    environment |= {"AWS_CONFIG_FILE": nowhere, "AWS_SHARED_CREDENTIALS_FILE": nowhere}
    environment |= {"AWS_EC2_METADATA_DISABLED": "true", "VIRTUAL_ENV": str(PROJECT / ".venv")}
    done = subprocess.run(
        [CDK, "deploy", "--all", "--output", tmp_path / "out"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode and NO_CREDENTIALS in done.stderr, done.stderr
    assert "Unable to resolve AWS account" not in done.stderr
    assert not list((tmp_path / "out").glob("*.template.json"))


def test_a_synth_needs_no_account_and_neither_does_what_is_no_cdk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for words, needed in (
        (["node", "/x/.bin/cdk", "deploy", "--all"], True),
        (["node", "/x/.bin/cdk", "--profile", "p", "destroy"], True),
        (["node", "/x/.bin/cdk", "synth", "-q"], False),
        (["make", "deploy"], False),
    ):
        monkeypatch.setattr(cdk_command, "_ancestors", lambda words=words: iter([words]))
        asked = cdk_command.missing_credentials({"CDK_CLI_VERSION": "2"})
        assert (asked == NO_CREDENTIALS) == needed, words
        assert cdk_command.missing_credentials({}) is None
        environment = {"CDK_CLI_VERSION": "2", "CDK_DEFAULT_ACCOUNT": "000000000000"}
        assert cdk_command.missing_credentials(environment) is None
