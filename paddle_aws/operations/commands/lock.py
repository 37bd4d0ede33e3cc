"""`paddle-aws lock add-ons`: writes the versions that EKS names to a dated file."""

from pathlib import Path

from paddle_aws.operations.account.aws import client
from paddle_aws.operations.account.locks.add_ons import defaults, releases
from paddle_aws.operations.account.locks.lock_file import write
from paddle_aws.operations.errors import Failed
from paddle_aws.operations.options import CLUSTER, Config, Out
from paddle_aws.operations.screen import say
from paddle_aws.stacks.cluster_spec import ADDONS, KUBERNETES_VERSIONS, NODE_IMAGES, load_cluster

ADD_ONS = Path("locks/add-ons.json")
ADD_ONS_SOURCE = (
    "EKS, DescribeAddonVersions: default versions; Parameter Store: recommended releases of node "
    "images"
)


def lock(config: Config = CLUSTER, out: Out = ADD_ONS) -> None:
    """Read the versions of EKS's add-ons and node images in a cluster's region, so that every
    deploy takes the same ones.

    Without the file, add-ons and images keep the versions with which they were created. Versions in
    cluster.addons take precedence over the file. Needs AWS credentials that allow
    eks:DescribeAddonVersions and ssm:GetParameters.

    Example: paddle-aws lock add-ons && cdk diff
    """
    spec = load_cluster(config)
    region = spec.region
    eks, ssm = client("eks", region), client("ssm", region)
    own = () if spec.cluster.self_managed else (spec.cluster.version,)
    versions = sorted({*KUBERNETES_VERSIONS, *own})
    read = {version: defaults(eks, version, ADDONS) for version in versions}
    if not any(read.values()):
        raise Failed(
            f"EKS in {region} names no default version of any add-on: {out} stays as it is"
        )
    read = {version: {**add_ons, **releases(ssm, version)} for version, add_ons in read.items()}
    write(out, ADD_ONS_SOURCE, {"region": region, "versions": read})
    unknown = list[str]()
    for version, add_ons in read.items():
        lacking = [name for name in (*ADDONS, *NODE_IMAGES) if name not in add_ons]
        unknown += [f"{name} for {version}" for name in lacking]
    rest = f"; EKS names no default of {', '.join(sorted(unknown))}" if unknown else ""
    say(f"{sum(map(len, read.values()))} versions are in {out}{rest}")
