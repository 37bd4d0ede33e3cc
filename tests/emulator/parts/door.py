"""Gives each EKS cluster the address and certificate of the test's API server (DOOR), and lets that
ask the emulator whom a cluster admits.
"""

import json
import os
from typing import Any

from identity import ANSWERS
from ministack.core.responses import get_account_id, get_region
from ministack.services import eks
from ministack.services.cloudformation import provisioners
from resource_types import complete_after


def _lead(name: str, old: object, new: object) -> dict[str, str]:
    door, cluster = json.loads(os.environ["DOOR"]), eks._clusters[name]
    cluster["endpoint"] = door["address"]
    cluster["certificateAuthority"] = {"data": door["certificate"]}
    return dict(provisioners._eks_cluster_attrs(cluster))


def review(cluster: str, token: str) -> dict[str, Any]:
    """Returns whether a cluster admits a token's owner, as whom: to which Kubernetes groups its
    access entries admit him.
    """
    record = eks._clusters.get(cluster) or {}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    answer = eks._authenticate_token_review(
        cluster,
        get_account_id(),
        get_region(),
        {**asked, "spec": {"token": token}},
        record.get("_auth_token", ""),
    )
    status: dict[str, Any] = json.loads(answer[2])["status"]
    return status


def apply() -> None:
    ANSWERS["review"] = review
    complete_after("AWS::EKS::Cluster", _lead)
