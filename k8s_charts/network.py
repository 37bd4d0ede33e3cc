"""Who may talk to whom: one NetworkPolicy a role, everything else refused.

The volume needs no rule: the node mounts it, not the pod.
"""

from __future__ import annotations

from cdk8s_plus_33 import k8s
from constructs import Construct

from k8s_charts import names
from k8s_charts.spec import TrainingJob

POD_IDENTITY_AGENT = ("169.254.170.23/32", "fd00:ec2::23/128")
"""Link-local addresses of the EKS Pod Identity agent, which hands out the data job's AWS credentials on port 80."""


def _port(number: int, protocol: str = "TCP") -> k8s.NetworkPolicyPort:
    return k8s.NetworkPolicyPort(port=k8s.IntOrString.from_number(number), protocol=protocol)


def _names_service() -> k8s.NetworkPolicyEgressRule:
    return k8s.NetworkPolicyEgressRule(
        to=[
            k8s.NetworkPolicyPeer(
                namespace_selector=k8s.LabelSelector(match_labels={"kubernetes.io/metadata.name": "kube-system"}),
                pod_selector=k8s.LabelSelector(match_labels={"k8s-app": "kube-dns"}),
            )
        ],
        ports=[_port(53, "UDP"), _port(53)],
    )


def _policy(
    scope: Construct,
    job: TrainingJob,
    role: names.Role,
    ingress: list[k8s.NetworkPolicyIngressRule],
    egress: list[k8s.NetworkPolicyEgressRule],
) -> None:
    k8s.KubeNetworkPolicy(
        scope,
        "NetworkPolicy",
        metadata=k8s.ObjectMeta(name=f"{job.name}-{role}", namespace=job.namespace, labels=names.labels(job, role)),
        spec=k8s.NetworkPolicySpec(
            pod_selector=k8s.LabelSelector(match_labels=names.labels(job, role)),
            policy_types=["Ingress", "Egress"],
            ingress=ingress,
            egress=egress,
        ),
    )


def trainers(scope: Construct, job: TrainingJob) -> None:
    """Trainers reach each other on every port (Paddle picks some itself) and the names service, nothing else."""
    peers = [k8s.NetworkPolicyPeer(pod_selector=k8s.LabelSelector(match_labels=names.labels(job, "trainer")))]
    _policy(
        scope,
        job,
        "trainer",
        ingress=[k8s.NetworkPolicyIngressRule(from_=peers)],
        egress=[k8s.NetworkPolicyEgressRule(to=peers), _names_service()],
    )


def data(scope: Construct, job: TrainingJob) -> None:
    """The data job reaches its source over HTTPS and the pod identity agent; nothing reaches it."""
    _policy(
        scope,
        job,
        "data",
        ingress=[],
        egress=[
            _names_service(),
            k8s.NetworkPolicyEgressRule(ports=[_port(443)]),
            k8s.NetworkPolicyEgressRule(
                to=[k8s.NetworkPolicyPeer(ip_block=k8s.IpBlock(cidr=cidr)) for cidr in POD_IDENTITY_AGENT], ports=[_port(80)]
            ),
        ],
    )
