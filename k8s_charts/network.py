"""Who may talk to whom: one NetworkPolicy a role, everything else refused.

The volume needs no rule: the node mounts it, not the pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from cdk8s_plus_33 import k8s
from constructs import Construct

from k8s_charts import names
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob

POD_IDENTITY_AGENT = ("169.254.170.23/32", "fd00:ec2::23/128")
"""Link-local addresses of the EKS Pod Identity agent, which hands out the data job's AWS credentials on port 80."""
INSTANCE_METADATA = ("169.254.169.254/32",)
"""Where an EC2 instance hands out its profile's credentials, on clusters without that agent."""
NODE_LOCAL_DNS = "169.254.20.10/32"
"""Where NodeLocal DNSCache listens on every node, in clusters that have it: their pods ask it instead of the DNS pods."""
LINK_LOCAL = {"0.0.0.0/0": ["169.254.0.0/16"], "::/0": ["fd00:ec2::/32", "fe80::/10"]}
"""Where a node hands out its own credentials (fd00:ec2::254), and EKS those of its pods (fd00:ec2::23)."""
API_SERVER_PORTS = (443, 6443)
"""EKS's API server, and where other clusters have theirs: a policy sees the port behind the `kubernetes` Service."""


def _port(number: int, protocol: str = "TCP") -> k8s.NetworkPolicyPort:
    return k8s.NetworkPolicyPort(port=k8s.IntOrString.from_number(number), protocol=protocol)


def to_anywhere(*ports: int) -> k8s.NetworkPolicyEgressRule:
    """Out to any address, on these TCP ports alone."""
    return k8s.NetworkPolicyEgressRule(ports=[_port(port) for port in ports])


def to_the_world() -> k8s.NetworkPolicyEgressRule:
    """Out to any address on any port, but for what is a node's own business."""
    blocks = (k8s.IpBlock(cidr=cidr, except_=without) for cidr, without in LINK_LOCAL.items())
    return k8s.NetworkPolicyEgressRule(to=[k8s.NetworkPolicyPeer(ip_block=block) for block in blocks])


def to_names_service() -> k8s.NetworkPolicyEgressRule:
    """Out to the cluster's DNS."""
    return k8s.NetworkPolicyEgressRule(
        to=[
            k8s.NetworkPolicyPeer(
                namespace_selector=k8s.LabelSelector(match_labels={"kubernetes.io/metadata.name": "kube-system"}),
                pod_selector=k8s.LabelSelector(match_labels={"k8s-app": "kube-dns"}),
            ),
            k8s.NetworkPolicyPeer(ip_block=k8s.IpBlock(cidr=NODE_LOCAL_DNS)),
        ],
        ports=[_port(53, "UDP"), _port(53)],
    )


def _policy(
    scope: Construct,
    job: TrainingJob,
    role: names.Role,
    ingress: Sequence[k8s.NetworkPolicyIngressRule],
    egress: Sequence[k8s.NetworkPolicyEgressRule],
) -> None:
    k8s.KubeNetworkPolicy(
        scope,
        f"{role}-network",
        metadata=k8s.ObjectMeta(name=f"{job.name}-{role}", namespace=job.namespace, labels=names.labels(job, role)),
        spec=k8s.NetworkPolicySpec(
            pod_selector=k8s.LabelSelector(match_labels=names.labels(job, role)),
            policy_types=["Ingress", "Egress"],
            # Absent means none, with Ingress among the types; an API server drops an empty list and would see a change each time.
            ingress=list(ingress) or None,
            egress=list(egress),
        ),
    )


def peers(
    scope: Construct, job: TrainingJob, roles: Sequence[names.Role], *, more: Sequence[k8s.NetworkPolicyEgressRule] = ()
) -> None:
    """The job's pods reach each other on every port (Paddle picks some itself) and the names service, and `more`."""
    others = [k8s.NetworkPolicyPeer(pod_selector=k8s.LabelSelector(match_labels=names.labels(job, role))) for role in roles]
    for role in roles:
        _policy(
            scope,
            job,
            role,
            ingress=[k8s.NetworkPolicyIngressRule(from_=others)],
            egress=[
                k8s.NetworkPolicyEgressRule(to=others),
                to_names_service(),
                *more,
                *([to_the_world()] if job.open_network else []),
            ],
        )


def _source_ports(job: TrainingJob) -> list[int]:
    """HTTPS, which S3 and redirects use; HTTP or a port of its own where the source's address names one."""
    source = urlsplit(job.data.source if job.data is not None and job.data.source is not None else "")
    return list(dict.fromkeys([443, *([80] if source.scheme == "http" else []), *([source.port] if source.port else [])]))


def data(scope: Construct, job: TrainingJob, outputs: ClusterOutputs) -> None:
    """The data job reaches its source over HTTPS (or as its address says) and its credentials; nothing reaches it."""
    addresses = INSTANCE_METADATA if outputs.data_job_credentials == "instance-profile" else POD_IDENTITY_AGENT
    credentials = [k8s.NetworkPolicyPeer(ip_block=k8s.IpBlock(cidr=cidr)) for cidr in addresses]
    _policy(
        scope,
        job,
        "data",
        ingress=[],
        egress=[
            to_names_service(),
            to_anywhere(*_source_ports(job)),
            k8s.NetworkPolicyEgressRule(to=credentials, ports=[_port(80)]),
        ],
    )
