"""An emulated AWS account that cdk deploys cluster.yaml's stacks into, and destroys them again.

Each pod acts as the role that AWS would give it, so a stack that forgets an association, a trust or
a right fails here as on AWS: on EKS the role of the Pod Identity association of its namespace and
service account; on a self-managed cluster the data job's pods have the nodes' role.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from k8s_charts.deployed import read_outputs
from k8s_charts.spec import TrainingJob
from paddle_aws.operations.account.aws import list_all
from paddle_aws.operations.account.bucket_upload import parse_object
from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.jobs.early_checks import check_cluster
from paddle_aws.operations.jobs.job_source import JobSource
from paddle_aws.rehearsal.account import Account, Resource, proxy_settings
from paddle_aws.rehearsal.cloud import Cloud, CloudError
from paddle_aws.rehearsal.folder import RehearsalFolder
from paddle_aws.rehearsal.pods.pod import Identity
from paddle_aws.rehearsal.screen import Screen
from paddle_aws.stacks.cluster_spec import load_cluster
from paddle_settings.shared_names import DATA_ACCOUNT


class DeployedAccount(Account):
    """An account that the real cdk deploys into, for one rehearsal."""

    def __init__(self, project: Path, config: Path, source: JobSource, job: TrainingJob) -> None:
        """`config` holds the cluster's settings. Raises SettingError, and BadInput for a job or
        settings that do not fit an empty account.
        """
        self._project, self._config = project, config
        self._source, self._variant = source, job.image_variant
        self._spec = load_cluster(config)
        check_cluster(job, self._spec)
        for name, part in self._spec:
            for field in getattr(type(part), "model_fields", ()):
                if field.startswith("existing") and getattr(part, field):
                    setting = f"{config.name}: {name}.{field} names what is in your account"
                    raise BadInput(
                        f"{setting}, and a rehearsal deploys into an empty one: leave it out here, "
                        "or take another file"
                    )
        self._life = ExitStack()

    def __exit__(self, *error: object) -> None:
        self._life.close()

    def deploy(self, folder: RehearsalFolder, screen: Screen) -> None:
        """Starts the emulator and deploys all stacks. cdk's output goes to a log, and its last line
        to the screen.
        """
        log = self._life.enter_context((folder.logs / "cdk.log").open("w", buffering=1))

        def report(text: str) -> None:
            log.write(text + "\n")
            screen.show_activity(text)

        with screen.phase("emulator") as phase:
            self._cloud = self._life.enter_context(
                Cloud(self._project, folder.cloud, report, region=self._spec.region)
            )
            endpoint = self._cloud.environment["AWS_ENDPOINT_URL"]
            phase.result = f"an AWS account of its own at {endpoint}"
        with screen.phase("bootstrap") as phase:
            self._cloud.bootstrap(self._config)
            phase.result = "paddle-aws bootstrap"
        self._before = self._cloud.inventory()
        with screen.phase("deploy") as phase:
            self._cloud.deploy(self._config, folder.outputs)
            self._outputs = read_outputs(folder.outputs)
            resources = self._cloud.inventory() - self._before
            phase.result = (
                f"cdk deploy --all: {len(self._outputs)} stacks, {len(resources)} resources"
            )
        if self._spec.cluster.self_managed:
            self._identity = node_role(self._cloud, self._spec.name)
        else:
            self._identity = pod_identity(self._cloud, self._output("ClusterName"))

    def write_manifests(self, folder: RehearsalFolder) -> list[Path]:
        repository = self._output("RepositoryUri")
        self.image = record_image(self._cloud, repository, folder.image_record, self._variant)
        words = ["--outputs", str(folder.outputs), "--image-file", str(folder.image_record)]
        words += ["--out", str(folder.manifests), *self._source.words()]
        # Every pod finds the volume here, wherever the cluster's nodes mount it.
        file = str(self._source.file.resolve())
        self._cloud.paddle_aws("manifests", file, *words, "--for-rehearsal")
        return sorted(folder.manifests.glob("*.k8s.yaml"))

    def upload(self, file: Path, address: str, links: Path) -> None:
        """Uploads twice, so that the destroy has an old version to delete, too."""
        client = self._cloud.client("s3")
        client.put_object(**parse_object(address), Body=b"an earlier version\n")
        client.upload_file(str(file), **parse_object(address))

    def identity(self, namespace: str, account: str) -> Mapping[str, str]:
        return self._identity(namespace, account)

    def destroy(self, screen: Screen) -> tuple[Resource, ...]:
        with screen.phase("destroy") as phase:
            is_retained = retention_test(self._cloud.client, list(self._outputs))
            self._cloud.destroy(self._config)
            left = sorted(self._cloud.inventory() - self._before)
            if forgotten := [str(resource) for resource in left if not is_retained(resource)]:
                words = f"cdk destroy left {len(forgotten)} resources behind"
                raise Failed("\n".join([words, *forgotten]))
            but = f" but for {len(left)} that retain keeps" if left else ""
            phase.result = f"cdk destroy --all: the inventory is as before{but}"
        return tuple(left)

    def _output(self, key: str) -> str:
        """Returns one output of the deployed stacks, whichever stack has it."""
        values = [outputs[key] for outputs in self._outputs.values() if key in outputs]
        if not values:
            raise CloudError(f"the deployed stacks have no output {key}")
        return values[0]


def retention_test(client: Callable[[str], Any], stacks: list[str]) -> Callable[[Resource], bool]:
    """Returns a function that says whether a resource outlives `stacks` as deployed now, by their
    templates: a retained resource, a part of one, or a volume's snapshot. `client` makes a client
    of the account by its service.
    """
    cloudformation = client("cloudformation")
    ids: dict[str, set[str]] = {"Retain": set(), "Snapshot": set()}
    for stack in stacks:
        body = cloudformation.get_template(StackName=stack)["TemplateBody"]
        template = body if isinstance(body, dict) else json.loads(body)
        for part in _list_resources(cloudformation, stack):
            resource = template["Resources"].get(part["LogicalResourceId"], {})
            policy, physical_id = resource.get("DeletionPolicy", ""), part.get("PhysicalResourceId")
            for kind, retained in ids.items():
                if physical_id and policy.startswith(kind):
                    retained.add(physical_id)

    def outlives(resource: Resource) -> bool:
        if resource.type == "snapshot" and ids["Snapshot"]:
            [snapshot] = client("ec2").describe_snapshots(SnapshotIds=[resource.id])["Snapshots"]
            return snapshot["VolumeId"] in ids["Snapshot"]
        # The ids of a bucket's objects and settings contain its name.
        return any(part in resource.id for part in ids["Retain"])

    return outlives


def _list_resources(cloudformation: Any, stack: str) -> Iterator[Any]:
    rows = "StackResourceSummaries[]"
    return list_all(cloudformation, "list_stack_resources", rows, StackName=stack)


def record_image(cloud: Cloud, repository_uri: str, file: Path, variant: str = "") -> str:
    """Puts an image's record into the repository and writes `file` as `make push` does. Returns the
    reference by digest.

    The record's manifest has no layers: the rehearsal's pods run the image's files.
    """
    kind = "application/vnd.oci.image.manifest.v1+json"
    answer = cloud.client("ecr").put_image(
        repositoryName=repository_uri.split("/", 1)[1],
        imageManifest=json.dumps({"schemaVersion": 2, "mediaType": kind, "layers": []}),
        imageManifestMediaType=kind,
        imageTag="rehearsal",
    )
    reference = f"{repository_uri}@{answer['image']['imageId']['imageDigest']}"
    record = {"variants": {variant: reference}} if variant else {"image": reference}
    file.write_text(f"{json.dumps(record)}\n")
    return reference


def pod_identity(cloud: Cloud, cluster: str) -> Identity:
    """Credentials through EKS Pod Identity."""
    eks = cloud.client("eks")

    @cache
    def variables(namespace: str, account: str) -> Mapping[str, str]:
        asked = {"clusterName": cluster, "namespace": namespace, "serviceAccount": account}
        for found in eks.list_pod_identity_associations(**asked)["associations"]:
            association = eks.describe_pod_identity_association(
                clusterName=cluster, associationId=found["associationId"]
            )["association"]
            return _act_as(cloud, "pods.eks.amazonaws.com", association["roleArn"])
        return {}

    return variables


def node_role(cloud: Cloud, cluster: str) -> Identity:
    """Credentials of a self-managed cluster's nodes: only the data job's pods may read them from
    the instance metadata.
    """

    @cache
    def variables(account: str) -> Mapping[str, str]:
        if account != DATA_ACCOUNT:
            return {}
        # MiniStack forgets the launch template of a group of several machine types.
        cloudformation, ec2, iam = map(cloud.client, ("cloudformation", "ec2", "iam"))
        [launch, *_] = [
            row["PhysicalResourceId"]
            for row in _list_resources(cloudformation, f"{cluster}-nodes")
            if row["ResourceType"] == "AWS::EC2::LaunchTemplate"
        ]
        newest = {"LaunchTemplateId": launch, "Versions": ["$Latest"]}
        [version] = ec2.describe_launch_template_versions(**newest)["LaunchTemplateVersions"]
        profile = version["LaunchTemplateData"]["IamInstanceProfile"]
        name = profile.get("Name") or profile["Arn"].rpartition("/")[2]
        [role] = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]
        return _act_as(cloud, "ec2.amazonaws.com", role["Arn"])

    return lambda namespace, account: variables(account)


def _act_as(cloud: Cloud, service: str, role: str) -> Mapping[str, str]:
    """Returns a pod's variables: none for a role that does not trust the service."""
    credentials = cloud.service_credentials(service, role)
    return {**proxy_settings(), **cloud.environment, **credentials} if credentials else {}
