"""A deploy protects the stacks that it makes and changes: the next one replaces nothing that holds
data, until somebody lifts that on purpose.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from constructs_lib.storage.stack_policy import KEPT
from paddle_aws.rehearsal.cloud import CloudError

from .conftest import PARTS
from .test_variants import PROJECT, Account

pytestmark = pytest.mark.slow

PARTS_OF_A_CLUSTER = ("access", "network", "storage", "cluster", "nodes")


def policies(api: Any) -> dict[str, Any]:
    """Returns the policies of the cluster's stacks."""
    names = [stack["StackName"] for stack in api.describe_stacks()["Stacks"]]
    return {
        name: json.loads(api.get_stack_policy(StackName=name).get("StackPolicyBody") or "null")
        for name in names
        if name.startswith("paddle-")
    }


def wait_for(api: Any, *stacks: str) -> None:
    """Waits until the stacks are protected: CloudFormation's events come a moment later."""
    deadline = time.monotonic() + 20
    while any(policies(api)[stack] != KEPT for stack in stacks):
        assert time.monotonic() < deadline, policies(api)
        time.sleep(0.1)


def test_a_deploy_replaces_nothing_that_holds_data(tmp_path: Path) -> None:
    parts = [*PARTS, PARTS[0].with_name("stack_policies.py")]
    config, outputs = tmp_path / "cluster.yaml", tmp_path / "outputs.json"
    settings = yaml.safe_load((PROJECT / "cluster.yaml").read_text())
    config.write_text(yaml.safe_dump(settings))
    with Account(project=PROJECT, state=tmp_path / "state", parts=parts) as cloud:
        api = cloud.client("cloudformation")
        cloud.bootstrap(config)
        before = cloud.inventory()
        cloud.deploy(config, outputs)
        wait_for(api, *(f"paddle-{part}" for part in PARTS_OF_A_CLUSTER))
        config.write_text(yaml.safe_dump(settings | {"file_system": {"posix_id": 2000}}))
        denied = (
            r"Action denied by stack policy: Statement \[#2\] does not allow \[Update:Replace\]"
        )
        with pytest.raises(CloudError, match=denied):
            cloud.deploy(config, outputs)
        # What an operator does who is locked out, and the stack is protected again.
        cloud.paddle_aws("protect", "--lift", str(config))
        assert policies(api)["paddle-storage"] != KEPT
        cloud.deploy(config, outputs)
        wait_for(api, "paddle-storage")
        cloud.destroy(config)
        assert cloud.inventory() - before == set()


@pytest.mark.long
def test_the_advice_of_the_page_works(tmp_path: Path) -> None:
    """What docs/aws.md says to do when a deploy stops, and around a destroy, done as it says."""
    page = " ".join((PROJECT / "docs" / "aws.md").read_text().split())
    config, outputs = tmp_path / "cluster.yaml", tmp_path / "outputs.json"
    settings = yaml.safe_load((PROJECT / "cluster.yaml").read_text()) | {"retain": True}

    def write(**more: Any) -> None:
        settings.update(more)
        config.write_text(yaml.safe_dump(settings))

    def bucket() -> str:
        return str(json.loads(outputs.read_text())["paddle-storage"]["BucketName"])

    write()
    with Account(project=PROJECT, state=tmp_path / "state", parts=PARTS) as cloud:
        cloud.bootstrap(config)
        cloud.deploy(config, outputs)
        s3, ours = cloud.client("s3"), bucket()
        s3.put_object(Bucket=ours, Key="data", Body=b"ours")
        s3.create_bucket(
            Bucket="theirs", CreateBucketConfiguration={"LocationConstraint": cloud.region}
        )

        assert "`cdk deploy S --exclusively`, then all" in page
        write(bucket={"existing_name": "theirs"})
        with pytest.raises(CloudError, match="as it is in use by paddle-cluster"):
            cloud.deploy(config, outputs)
        cloud.cdk(
            "deploy", "paddle-cluster", "--exclusively", "--require-approval=never", config=config
        )
        cloud.deploy(config, outputs)
        assert bucket() == "theirs"
        kept = s3.get_object(Bucket=ours, Key="data")["Body"].read()
        assert kept == b"ours", "retain is true"

        # Compute goes and comes back, as another one; while the cluster ended, EKS made its log
        # group again.
        assert "`cdk destroy <name>-nodes <name>-cluster` removes the most expensive stacks" in page
        assert "To change `compute`, destroy the nodes' stack first" in page
        cloud.cdk("destroy", "paddle-nodes", "paddle-cluster", "--force", config=config)
        group = "/aws/eks/paddle/cluster"
        cloud.client("logs").create_log_group(logGroupName=group)
        write(compute="auto", nodes={"workers": {"instance_types": ["m5.large"]}})
        with pytest.raises(CloudError, match="already exists"):
            cloud.deploy(config, outputs)
        assert "paddle-aws doctor --fix" in page
        with suppress(CloudError):  # No pod answers here, which it says.
            cloud.paddle_aws("doctor", "--fix", str(config))
        cloud.deploy(config, outputs)
        cluster = cloud.client("eks").describe_cluster(name="paddle")["cluster"]
        assert cluster["computeConfig"]["enabled"]
        assert bucket() == "theirs"
