"""Our charts and cluster in a stranger's CDK app: a value unknown before deployment is a token and
comes out as a reference.
"""

import json
import re
from collections.abc import Callable
from itertools import pairwise

import aws_cdk as cdk
import cdk8s
import pytest
from aws_cdk import assertions, aws_ec2, aws_efs, aws_eks_v2, aws_lambda, aws_s3

from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.storage.lustre import LustreFileSystem
from k8s_charts.deployed import ClusterOutputs
from k8s_charts.kinds.data_job import DataChart
from k8s_charts.kinds.volume import VolumeChart
from k8s_charts.spec import TrainingJob

pytestmark = pytest.mark.slow


def manifests(job: TrainingJob, *, more: bool = False) -> str:
    """Returns all manifests of a stranger's stack with our cluster, their own file system and
    bucket; `more` adds a bucket.

    They are text, with references as {"Ref"} and {"Fn::GetAtt"}.
    """
    stack = cdk.Stack(cdk.App(), "Stranger")
    if more:
        aws_s3.Bucket(stack, "Other").bucket_name  # noqa: B018
    layer = aws_lambda.LayerVersion.from_layer_version_arn(
        stack, "Layer", "arn:aws:lambda:eu-central-1:000000000000:layer:kubectl:1"
    )
    vpc = aws_ec2.Vpc(stack, "Vpc")
    options = aws_eks_v2.KubectlProviderOptions(kubectl_layer=layer)
    cluster = TrainingCluster(
        stack, "Cluster", vpc=vpc, cluster_name="train", kubectl_provider_options=options
    )
    bucket_name = aws_s3.Bucket(stack, "Bucket").bucket_name
    if job.volume.kind == "lustre":
        lustre = LustreFileSystem(stack, "Files", vpc=vpc)
        outputs = ClusterOutputs(bucket_name=bucket_name, **lustre.volume_source)
    else:
        files = aws_efs.FileSystem(stack, "Files", vpc=vpc)
        outputs = ClusterOutputs(
            file_system_id=files.file_system_id,
            access_point_id=files.add_access_point("Point").access_point_id,
            bucket_name=bucket_name,
            file_system_dns_name=f"{files.file_system_id}.efs.{stack.region}.{stack.url_suffix}",
        )
    app = cdk8s.App()
    cluster.add_cdk8s_chart("volume", VolumeChart(app, job, outputs))
    cluster.add_cdk8s_chart("data", DataChart(app, job, outputs, "image"))
    resources = assertions.Template.from_stack(stack).find_resources(
        "Custom::AWSCDK-EKS-KubernetesResource"
    )
    return json.dumps([resource["Properties"]["Manifest"] for resource in resources.values()])


@pytest.mark.parametrize(
    ("kind", "field"), [("efs", "volumeHandle"), ("lustre", "mountname"), ("nfs", "server")]
)
def test_tokens_come_out_as_references(
    kind: str, field: str, job: Callable[..., TrainingJob]
) -> None:
    # A user's `$` is escaped for the kubelet; the `$` that begins a token is not.
    text = manifests(job(volume={"kind": kind}, data={"source": "corpora/a$b.tsv"}))
    assert "Token[" not in text
    assert "$$b.tsv" in text
    joined = [manifest["Fn::Join"][1] for manifest in json.loads(text)]
    references = {
        before: part
        for parts in joined
        for before, part in pairwise(parts)
        if isinstance(part, dict)
    }
    assert all(set(part) <= {"Ref", "Fn::GetAtt"} for part in references.values())
    assert any(before.endswith(f'"{field}":"') for before in references), references
    assert any(before.endswith("s3://") for before in references), references
    # A replaced access point or file system needs another volume and claim: values that cannot be
    # hashed yet are in their names.
    assert re.search(
        r'"name":"paddle\.words-[0-9a-f]{8}-$',
        next(b for b in references if '"name":"paddle.words' in b),
    )


def test_a_change_elsewhere_in_the_app_changes_no_name(job: Callable[..., TrainingJob]) -> None:
    before, after = (
        re.findall(r"words-data-[0-9a-f]{8}", manifests(job(), more=more)) for more in (False, True)
    )
    assert before == after != []
