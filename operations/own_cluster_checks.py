"""Whether a self-managed cluster is ready for jobs: its control plane, what it has written, and its groups of machines.

Promises: reads only, and no secret's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from operations.account_checks import AccountChecks
from operations.findings import Check, Found, State
from stacks.cluster_spec import ClusterSpec

SNAPSHOTS = "cluster/snapshots/"
OLD = timedelta(days=1, hours=12)
"""After which the newest snapshot of etcd is worth a word, whatever the schedule: a day and a half without one."""


class OwnClusterChecks:
    """The checks of one deployed cluster."""

    def __init__(self, spec: ClusterSpec, account: AccountChecks, outputs: Mapping[str, str]) -> None:
        self.spec, self._client, self._outputs = spec, account.client, outputs

    def all(self) -> list[Check]:
        """In the order in which they are shown."""
        return [
            ("control plane", self.control_plane),
            ("kubeconfig", self.kubeconfig),
            ("etcd snapshots", self.snapshots),
            ("groups", self.groups),
        ]

    def control_plane(self) -> Found:
        filters = [
            {"Name": "tag:cluster", "Values": [self.spec.name]},
            {"Name": "tag:Name", "Values": [f"{self.spec.name}/control-plane"]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        found = self._client("ec2").describe_instances(Filters=filters)["Reservations"]
        machines = [one for reservation in found for one in reservation["Instances"]]
        if not machines:
            yield (
                "problem",
                "no control plane runs: its group makes another, `aws autoscaling describe-scaling-activities` says why not",
            )
        for one in machines:
            wanted, has = self._outputs.get("ControlPlaneAddress"), one.get("PrivateIpAddress")
            good = one["State"]["Name"] == "running" and wanted in (None, has)
            text = f"{one['InstanceId']} is {one['State']['Name']} at {has}"
            yield ("ok" if good else "problem"), text + ("" if wanted in (None, has) else f", and its fixed address is {wanted}")

    def kubeconfig(self) -> Found:
        """Written last: it shows that the API server has come up at least once."""
        secret = self._client("secretsmanager").describe_secret(SecretId=f"{self.spec.name}/kubeconfig/operator")
        if secret.get("VersionIdsToStages"):
            yield "ok", "the control plane has written its kubeconfigs: `paddle-aws kubeconfig` fetches yours"
        else:
            yield (
                "problem",
                "the control plane has written no kubeconfig yet: see its console output, or connect by Session Manager",
            )

    def snapshots(self) -> Found:
        bucket = self._outputs.get("BucketName") or self.spec.bucket.existing_name
        pages = self._client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=SNAPSHOTS)
        times = [one["LastModified"] for page in pages for one in page.get("Contents", ())]
        if not times:
            yield "warning", f"s3://{bucket}/{SNAPSHOTS} holds no snapshot of etcd yet (cluster.snapshots.schedule)"
            return
        age = datetime.now(UTC) - max(times)
        state: State = "warning" if age > OLD else "ok"
        yield state, f"the newest of {len(times)} is {age.total_seconds() / 3600:.0f} h old (cluster.snapshots.schedule)"

    def groups(self) -> Found:
        filters = [{"Name": "tag:cluster", "Values": [self.spec.name]}]
        pages = self._client("autoscaling").get_paginator("describe_auto_scaling_groups").paginate(Filters=filters)
        for group in (one for page in pages for one in page["AutoScalingGroups"]):
            states = [(one["LifecycleState"], one["HealthStatus"]) for one in group.get("Instances", ())]
            ready, wanted = states.count(("InService", "Healthy")), group["DesiredCapacity"]
            state: State = "ok" if ready >= wanted else "problem"
            yield state, f"{group['AutoScalingGroupName']} has {ready} of {wanted} machines in service"
