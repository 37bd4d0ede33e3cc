"""Who may talk to whom: one NetworkPolicy per role, everything else is refused.

The volume needs no rule: the node mounts it, not the pod.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from constructs import Construct

from k8s_charts import names, yaml_documents
from k8s_charts.deployed import ClusterOutputs
from k8s_charts.spec import TrainingJob

Rule = Mapping[str, Any]
(RULES,) = yaml_documents.template("network.yaml")
"""Egress rules by destination."""


def allow_ports(*ports: int) -> Rule:
    """Returns an egress rule to any address, on these TCP ports only."""
    return {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}


def _names(outputs: ClusterOutputs) -> Rule:
    # Auto Mode has no DNS pods: CoreDNS is a service of each node, and pods ask it at the service
    # range's tenth address, which no pod selector covers (aws/containers-roadmap#2552).
    blocks = [{"ipBlock": {"cidr": f"{address}/32"}} for address in outputs.auto_mode_dns]
    return {**RULES["names"], "to": [*RULES["names"]["to"], *blocks]}


def _add_policy(
    scope: Construct,
    job: TrainingJob,
    role: names.Role,
    egress: Sequence[Rule],
    ingress: Sequence[Rule] = (),
) -> None:
    labels = names.labels(job, role)
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": f"{job.name}-{role}", "namespace": job.namespace, "labels": labels},
        "spec": {
            # With its direction among the types, an absent list means none. An API server drops an
            # empty list and would always see a change.
            **({"egress": egress} if egress else {}),
            **({"ingress": ingress} if ingress else {}),
            "podSelector": {"matchLabels": dict(sorted(labels.items()))},
            "policyTypes": ["Ingress", "Egress"],
        },
    }
    yaml_documents.add(scope, policy)


def add_peer_policy(
    scope: Construct,
    job: TrainingJob,
    roles: Sequence[names.Role],
    outputs: ClusterOutputs,
    *,
    more: Sequence[Rule] = (),
) -> None:
    """Lets the job's pods reach each other on every port (Paddle picks some itself), the name
    service, and `more`.
    """
    others = [
        {"podSelector": {"matchLabels": dict(sorted(names.labels(job, role).items()))}}
        for role in roles
    ]
    world = [RULES["world"]] if job.open_network else []
    for role in roles:
        _add_policy(
            scope,
            job,
            role,
            [{"to": others}, _names(outputs), *more, *world],
            ingress=[{"from": others}, *_readers(job)],
        )


def _readers(job: TrainingJob) -> list[Rule]:
    """Returns the rule that lets the readers named by `scrape` reach the pods' metrics, and nothing
    else.
    """
    if job.scrape is None:
        return []
    reader = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": job.scrape.namespace}},
        **({"podSelector": {"matchLabels": job.scrape.pods}} if job.scrape.pods else {}),
    }
    return [{"from": [reader], "ports": [{"port": job.ports.metrics, "protocol": "TCP"}]}]


def add_data_policy(scope: Construct, job: TrainingJob, outputs: ClusterOutputs) -> None:
    """Lets the data job reach its source over HTTPS (or as its address says) and its credentials.
    Nothing reaches it.
    """
    addresses = [source for source in job.inputs.values() if isinstance(source, str)]
    if job.data is not None and job.data.source is not None:
        addresses.append(job.data.source)
    # HTTPS, which S3 and redirects use, plus HTTP or another port if an address names one.
    ports = [443]
    for address in map(urlsplit, addresses):
        ports += [80] if address.scheme == "http" else []
        ports += [address.port] if address.port else []
    ports += outputs.proxy_ports
    ports = list(dict.fromkeys(ports))
    _add_policy(
        scope,
        job,
        "data",
        [_names(outputs), allow_ports(*ports), RULES[outputs.data_job_credentials]],
    )


def add_environment_policy(scope: Construct, job: TrainingJob, outputs: ClusterOutputs) -> None:
    """Lets the environment Job reach package indexes: public ones over HTTPS, or the job's index,
    in any network. With wheels on the volume it reaches nothing. Nothing reaches it.
    """
    index = job.program.index
    if job.program.wheels is not None:
        rules: list[Rule] = []
    elif index is None:
        rules = [_names(outputs), {**RULES["public"], **allow_ports(443)}]
    else:
        address = urlsplit(index.url)
        port = address.port or (80 if address.scheme == "http" else 443)
        rules = [_names(outputs), {**RULES["world"], **allow_ports(*dict.fromkeys((443, port)))}]
    if rules and outputs.proxy_ports:
        rules.append({**RULES["world"], **allow_ports(*outputs.proxy_ports)})
    _add_policy(scope, job, "environment", rules)
