"""One EKS add-on, with the rights of its pods.

Promises: EKS picks the version unless one is given (no number is shipped that was not read at its source); rights come
by EKS Pod Identity, to the add-on's own service account alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.any_cluster import AnyCluster


class ClusterAddon(Construct):
    """An add-on of an EKS cluster.

    Args:
        cluster: the cluster.
        addon_name: EKS's name of it, such as coredns.
        version: such as v1.2.3-eksbuild.1; None: EKS's default for the cluster's version.
        configuration: the add-on's own settings.
        role: IAM role of its pods; it must trust EKS Pod Identity (`pod_identity_principal`).
        service_account: name of its service account; needed where a role is given.

    Attributes:
        resource: the CloudFormation resource, to depend on.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        addon_name: str,
        version: str | None = None,
        configuration: Mapping[str, Any] | None = None,
        role: iam.IRole | None = None,
        service_account: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        identities = None
        if role is not None:
            if service_account is None:
                raise ValueError(f"add-on {addon_name} has a role but no service_account: name the account that gets the role")
            identities = [eks.CfnAddon.PodIdentityAssociationProperty(role_arn=role.role_arn, service_account=service_account)]
        self.resource = eks.CfnAddon(
            self,
            "Resource",
            addon_name=addon_name,
            cluster_name=cluster.cluster_name,
            addon_version=version,
            configuration_values=json.dumps(configuration, sort_keys=True) if configuration else None,
            pod_identity_associations=identities,
            resolve_conflicts="OVERWRITE",
        )
