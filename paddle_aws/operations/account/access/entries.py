"""A cluster's kubeconfig entry. No content of an entry is ever shown.

EKS's is as the aws CLI writes it: the CLI itself gives the tokens. EKS knows IAM roles and users,
not groups, so a token is of a team's role, unless the caller has an access entry of its own. For a
self-managed cluster each team has its own kubeconfig in Secrets Manager; anyone who may read a
team's secret acts as that team (docs/people.md).
"""

import os
from typing import Any, Literal

import yaml

from paddle_aws.operations.account.aws import client
from paddle_aws.operations.account.cluster_account import ClusterAccount, outputs_of
from paddle_aws.operations.cluster.kubeconfig_file import Entry
from paddle_aws.operations.errors import BadInput, Unreachable
from paddle_aws.stacks.cluster_spec import ClusterSpec

Team = Literal["operator", "trainer", "reader"]
EXEC = "client.authentication.k8s.io/v1beta1"


def eks_entry(spec: ClusterSpec, team: Team | None) -> tuple[Entry, bool]:
    """Returns the kubeconfig entry, with the program that gives tokens and no credential, and
    whether the endpoint is public.

    `team`: whose role the tokens are of; None: the caller's own, or the operator's.

    Raises BadInput if there is no such cluster or the caller can take no role, Unreachable if it is
    not active yet.
    """
    name, region = spec.cluster_name, spec.region
    api = client("eks", region)
    try:
        description = api.describe_cluster(name=name)["cluster"]
    except api.exceptions.ResourceNotFoundException:
        advice = "deploy it, or correct name and region in cluster.yaml"
        raise BadInput(f"cluster {name} does not exist in {region}: {advice}") from None
    if description.get("status") not in ("ACTIVE", "UPDATING"):
        raise Unreachable(f"cluster {name} is {description.get('status')}: wait until it is ACTIVE")
    authority = description.get("certificateAuthority", {}).get("data", "")
    cluster = {"server": description["endpoint"], "certificate-authority-data": authority}
    public = bool(description.get("resourcesVpcConfig", {}).get("endpointPublicAccess", True))
    role = _role(spec, team)
    program = _credential_program(name, region, role)
    return Entry(description["arn"], cluster, {"exec": program}), public


def is_same_principal(caller: str, principal: str) -> bool:
    """Returns whether a caller (STS's ARN) is this IAM user or role, which a session does not name
    by its path.

    >>> is_same_principal("arn:aws:sts::1:assumed-role/ada/me", "arn:aws:iam::1:role/people/ada")
    True
    """
    if ":assumed-role/" not in caller:
        return caller == principal
    account, session = caller.split(":", 5)[4:]
    whose, _, role = principal.partition(":iam::")[2].partition(":role/")
    return (account, session.split("/")[1]) == (whose, role.rpartition("/")[2])


def admits(spec: ClusterSpec, caller: str) -> bool:
    """Returns whether the settings give the caller (STS's ARN) an access entry of its own."""
    known = [*spec.cluster.administrators, *spec.cluster.deployers, *spec.cluster.readers]
    return any(is_same_principal(caller, arn) for arn in known)


def _role(spec: ClusterSpec, team: Team | None) -> str | None:
    """Returns the role that the tokens are of; None: the caller's own identity."""
    account = ClusterAccount(spec)
    caller = account.identity["Arn"]
    if caller.endswith(":root"):
        raise BadInput(
            "these credentials are the account's root, which may take no role and so cannot enter "
            "the cluster: log in as a user or a role (docs/people.md)"
        )
    if team is None and admits(spec, caller):
        return None
    role = _outputs(account).get(f"{(team or 'operator').title()}RoleArn")
    if role is None:
        raise BadInput(
            f"the deployed stacks of {spec.name} have no output {(team or 'operator').title()}"
            "RoleArn: deploy all of them"
        )
    # A role need not be allowed to take itself.
    return None if is_same_principal(caller, role) else role


def _outputs(account: ClusterAccount) -> dict[str, str]:
    """Returns the stacks' outputs, or those of the access stack, which each team may read."""
    from botocore.exceptions import ClientError

    try:
        return account.outputs
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("AccessDenied", "AccessDeniedException"):
            raise
    stack = f"{account.spec.name}-access"
    described = account.client("cloudformation").describe_stacks(StackName=stack)
    return outputs_of(described["Stacks"][0])


def _credential_program(name: str, region: str, role: str | None) -> dict[str, Any]:
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    program: dict[str, Any] = {
        "apiVersion": EXEC,
        "command": "aws",
        "args": [*arguments, *(["--role-arn", role] if role else [])],
        "interactiveMode": "IfAvailable",
    }
    if profile := os.environ.get("AWS_PROFILE"):
        program["env"] = [{"name": "AWS_PROFILE", "value": profile}]
    return program


def team_entry(name: str, region: str, team: Team) -> Entry:
    """Returns a team's entry. Raises BadInput or Unreachable if the team's secret holds none."""
    from botocore.exceptions import ClientError

    secret = f"{name}/kubeconfig/{team}"
    try:
        answer = client("secretsmanager", region).get_secret_value(SecretId=secret)
    except ClientError as error:
        if error.response["Error"]["Code"] == "AccessDeniedException":
            raise Unreachable(
                f"you may not read secret {secret}: --team names another team (operator, "
                "trainer, reader)"
            ) from None
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        # AWS gives one answer in two cases: no such secret, and a secret without a value yet.
        if "staging label" in error.response["Error"].get("Message", ""):
            raise Unreachable(
                f"the control plane of {name} has not written its kubeconfig yet: wait until it "
                "has started (some minutes)"
            ) from None
        raise BadInput(
            f"secret {secret} does not exist in {region}: deploy the cluster, or correct name "
            "and region in cluster.yaml"
        ) from None
    try:
        config = yaml.safe_load(answer["SecretString"])
        cluster, user = dict(config["clusters"][0]["cluster"]), dict(config["users"][0]["user"])
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError, RecursionError):
        # Without the secret's content: it may be a secret all the same.
        raise BadInput(
            f"secret {secret} holds no kubeconfig: the control plane writes it when it starts"
        ) from None
    # The operator's entry has the cluster's name; the others' names differ.
    return Entry(name if team == "operator" else f"{name}-{team}", cluster, user)
