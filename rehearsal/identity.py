"""Plays the EKS Pod Identity agent: a pod has AWS credentials only where the deployed cluster associates its account.

The association is read from the emulated EKS, so that a stack which forgets it, or names another namespace,
fails here as it would on AWS. Such a pod also gets this machine's way out (proxy, certificates), because its data may
lie at an https:// address; the others talk to nobody but each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from rehearsal.cloud import Cloud

_WAY_OUT = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


def way_out() -> dict[str, str]:
    """This machine's own way to the internet."""
    return {name: os.environ[name] for name in _WAY_OUT if name in os.environ}


def pod_identity(cloud: Cloud, cluster: str) -> Callable[[str, str], Mapping[str, str]]:
    """A function of (namespace, service account) that gives the variables a pod of that account gets."""
    client = cloud.client("eks")
    known: dict[tuple[str, str], Mapping[str, str]] = {}

    def variables(namespace: str, account: str) -> Mapping[str, str]:
        key = (namespace, account)
        if key not in known:
            found = client.list_pod_identity_associations(clusterName=cluster, namespace=namespace, serviceAccount=account)
            known[key] = {**way_out(), **cloud.environment} if found["associations"] else {}
        return known[key]

    return variables
