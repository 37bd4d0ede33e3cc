"""Plays the EKS Pod Identity agent: a pod has AWS credentials only where the deployed cluster associates its account.

The association is read from the emulated EKS, so that a stack which forgets it, or names another namespace,
fails here as it would on AWS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rehearsal.cloud import Cloud


def pod_identity(cloud: Cloud, cluster: str) -> Callable[[str, str], Mapping[str, str]]:
    """A function of (namespace, service account) that gives the variables a pod of that account gets."""
    client = cloud.client("eks")
    known: dict[tuple[str, str], Mapping[str, str]] = {}

    def variables(namespace: str, account: str) -> Mapping[str, str]:
        key = (namespace, account)
        if key not in known:
            found = client.list_pod_identity_associations(clusterName=cluster, namespace=namespace, serviceAccount=account)
            known[key] = cloud.environment if found["associations"] else {}
        return known[key]

    return variables
