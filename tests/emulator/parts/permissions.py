"""The role that CloudFormation executes a stack with: what it may not do fails the stack, by the action's name.

MiniStack takes a stack's role and forgets it. Promises, in a `Cloud(enforce=True, parts=[this])`: before a resource is made,
changed or deleted, each action that AWS's own handler of the type calls (stacks/deployment_actions.json, which is AWS's
data) is put to the policies of the stack's role, on the resource's ARN, with its tags. An unknown type is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from ministack.core import iam_evaluator
from ministack.core.responses import get_account_id, get_region
from ministack.services import cloudformation, ec2, efs, iam, kms
from ministack.services.cloudformation import changesets, handlers, provisioners, stacks
from resource_types import Call, Properties, after

INVISIBLE = ("AWS::CDK::Metadata", "AWS::CloudFormation::WaitConditionHandle", "AWS::CloudFormation::WaitCondition")
"""Types that call no service."""

NAMED_BY = {
    "ec2:internet-gateway": "InternetGatewayId",
    "ec2:route-table": "RouteTableId",
    "ec2:security-group": "GroupId",
    "ec2:vpc": "VpcId",
    "eks:cluster": "ClusterName",
    "elasticfilesystem:file-system": "FileSystemId",
    "kms:key": "TargetKeyId",
    "lambda:function": "ServiceToken",
    "route53:hostedzone": "HostedZoneId",
    "s3:bucket": "Bucket",
    "sns:topic": "TopicArn",
}
"""The property by which a resource of another type names what it belongs to."""

TAGS = ("Tags", "FileSystemTags", "AccessPointTags", "HostedZoneTags", "ResourceTags")

_data: dict[str, Any] = json.loads((Path(__file__).parents[3] / "stacks" / "deployment_actions.json").read_text(encoding="utf-8"))


def _arns(pattern: str, props: Properties) -> list[str]:
    """Those of a kind that the properties name."""
    return sorted(set(re.findall(f'"(arn:aws:{pattern}[^"]+)"', json.dumps(props))))


def _cluster(identifier: str, props: Properties) -> str:
    """The tag `cluster` of what exists under `identifier`, else the one that the properties give."""
    stored = ec2._tags.get(identifier)
    for store in (efs._file_systems, efs._access_points, kms._keys):
        stored = stored or (store.get(identifier) or {}).get("Tags")
    given = stored or next((props[name] for name in TAGS if props.get(name)), [])
    if isinstance(given, Mapping):
        return str(given.get("cluster", ""))
    return {str(tag.get("Key", tag.get("TagKey"))): str(tag.get("Value", tag.get("TagValue"))) for tag in given}.get(
        "cluster", ""
    )


def _arn(on: str, kind: str, props: Properties, own: str) -> tuple[str, str]:
    """(ARN, id) of what an action on `on`, such as `iam:role`, is about while a resource of `kind` called `own` is worked on."""
    identifier = str(props.get(NAMED_BY.get(on, ""), "") or own)
    if identifier.startswith("arn:"):
        return identifier, identifier
    cluster = props.get("ClusterName") or props.get("Name")
    path = {
        "autoscaling:autoscalinggroup": f"*:autoScalingGroupName/{identifier}",
        "iam:oidc-provider": f"oidc.eks.{get_region()}.amazonaws.com/id/0123456789ABCDEF",
        "kms:alias": identifier.removeprefix("alias/"),
        "ssm:parameter": "ec2/keypair/*" if kind == "AWS::EC2::KeyPair" else identifier.lstrip("/"),
    }.get(on, identifier)
    if on.startswith("eks:") and on != "eks:cluster":
        path = f"{cluster}/{path}"
    form = _data["arns"][on].replace("${Partition}", "aws").replace("${Region}", get_region())
    return form.replace("${Account}", get_account_id()) + path, identifier


def _boundary(arn: str, kind: str, props: Properties) -> dict[str, str]:
    """The condition key: of the role that is being made or changed, else of the one under `arn`."""
    role = props if kind == "AWS::IAM::Role" else iam._roles.get(arn.rpartition("/")[2], {})
    found = role.get("PermissionsBoundary")
    return {"iam:permissionsboundary": found} if found else {}


def _asked(action: str, kind: str, operation: str, props: Properties, own: str) -> list[tuple[str, dict[str, Any]]]:
    """(ARN, condition keys) of everything that `action` is asked for."""
    account = f"arn:aws:iam::{get_account_id()}"
    reviewed = _data["reviewed"]
    if action == "iam:PassRole":
        roles = _arns(r"iam::\d+:role/", props)
        if kind == "AWS::IAM::InstanceProfile":
            roles = [f"{account}:role/{role}" for role in props.get("Roles", [])]
        return [(role, {"iam:passedtoservice": reviewed["passed_to"].get(kind, "")}) for role in roles]
    if action == "iam:CreateServiceLinkedRole":
        services = reviewed["linked_role_of"][kind].split()
        return [(f"{account}:role/aws-service-role/{one}/*", {"iam:awsservicename": one}) for one in services]
    if action.startswith("kms:") and not kind.startswith("AWS::KMS::"):
        via = {"kms:grantisforawsresource": "true", "kms:viaservice": f"service.{get_region()}.amazonaws.com"}
        return [(key, via) for key in _arns(r"kms:[^\"]+:key/", props)]
    if policy := re.fullmatch(r"iam:(?:At|De)tach(Role|Group)Policy", action):
        entities, attached = [_arn(f"iam:{policy.group(1).lower()}", kind, props, own)[0]], props.get("ManagedPolicyArns") or []
        if kind == "AWS::IAM::ManagedPolicy":
            names = props.get(f"{policy.group(1)}s") or []
            entities = [f"{account}:{policy.group(1).lower()}/{one}" for one in names]
            attached = [_arn("iam:policy", kind, props, own)[0]]
        return [(one, {"iam:policyarn": arn, **_boundary(one, kind, props)}) for one in entities for arn in attached]
    service = action.partition(":")[0]
    if action in ("iam:CreateRole", "iam:PutRolePermissionsBoundary"):
        return [(_arn("iam:role", kind, props, own)[0], _boundary("", kind, props))]
    keys: dict[str, Any] = {"route53:changeresourcerecordsetsnormalizedrecordnames": [str(props.get("Name")).rstrip(".")]}
    if operation == "create":
        keys |= {f"{service}:createaction": "x", "aws:requesttag/cluster": _cluster("", props)}
    else:
        keys["kms:resourcealiases"] = ["alias/of-the-key"]
    found = []
    kinds = [f"{service}:{one}" for one in _data["actions"][action].split()]
    # Of an action on either of several types, the one that is meant.
    for on in [one for one in kinds if reviewed["named"].get(one) == kind] or kinds:
        # What another type's resource is called, its own does not say: only the property that names it does.
        if reviewed["named"].get(on, kind) == kind or NAMED_BY.get(on, "") in props:
            arn, identifier = _arn(on, kind, props, own)
            # What is tagged as it is made has no tag before.
            new = operation == "create" and action.endswith((":CreateTags", ":TagResource"))
            found.append((arn, keys | {"aws:resourcetag/cluster": "" if new else _cluster(identifier, props)}))
    return found if _data["actions"][action] else [("*", keys)]


def ask(role: str, kind: str, operation: str, props: Properties, physical_id: str, stack: str, logical_id: str) -> None:
    """Refuse what `role` may not do: ValueError as CloudFormation words it."""
    if kind in INVISIBLE or not role:
        return
    if kind not in _data["handlers"]:
        raise ValueError(f"the emulator knows no permissions of {kind}: it is in no variant (stacks/deployment_actions.json)")
    given = {**props, **props.get("Budget", {})}.get(_data["names"].get(kind, ""))
    lower = kind in ("AWS::S3::Bucket", "AWS::ECR::Repository")
    made_up = provisioners._physical_name(stack, logical_id, lowercase=lower, max_len=255)
    made_up = f"CFN-{made_up}" if kind == "AWS::SSM::Parameter" else made_up
    own = str(given or physical_id.rpartition("/")[2] or made_up)
    calls = _data["handlers"][kind]
    policies = _policies(role)
    for action in sorted({*calls[operation].split(), *calls["read"].split()}):
        for arn, keys in _asked(action, kind, operation, props, own):
            _put(role, policies, action, arn, keys)


def _policies(role: str) -> list[Any]:
    found: list[Any] = iam_evaluator._gather_role_policies(role.rpartition("/")[2], get_account_id())
    return found


def _put(role: str, policies: list[Any], action: str, arn: str, context: Mapping[str, Any]) -> None:
    account = get_account_id()
    name = role.rpartition("/")[2]
    asked = iam_evaluator.EvalContext(
        principal_arn=f"arn:aws:sts::{account}:assumed-role/{name}/AWSCloudFormation",
        principal_type="AssumedRole",
        principal_account=account,
        action=action,
        resource_arn=arn,
        region=get_region(),
        secure_transport=True,
        service_context={**context, "aws:tagkeys": None, "aws:calledviafirst": "cloudformation.amazonaws.com"},
        principal_keys={"aws:principalarn": role, "aws:principalaccount": account},
    )
    if iam_evaluator.evaluate(asked, policies).decision != "Allow":
        raise ValueError(
            f"User: {asked.principal_arn} is not authorized to perform: {action} on resource: {arn} because no identity-based "
            f"policy allows the {action} action (Status Code: 403, AccessDenied)"
        )


_roles: dict[tuple[str, str, str], str] = {}
"""(account, region, stack name) -> the role that the stack was last given."""
_asking: ContextVar[str] = ContextVar("_asking", default="")
"""The role of the stack that the present request is about."""


def apply() -> None:
    """Remember each stack's role, and ask it before each resource."""
    answer = cloudformation.handle_request

    async def remembering(method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]) -> Any:
        asked = parse_qs(body.decode(errors="replace"))
        if "StackName" in asked:
            name = asked["StackName"][0]
            name = name.split("/")[1] if name.startswith("arn:") else name
            if "RoleARN" in asked:
                _roles[get_account_id(), get_region(), name] = asked["RoleARN"][0]
            _asking.set(_of(name))
        return await answer(method, path, headers, body, query)

    cloudformation.handle_request = remembering
    for module in (handlers, changesets):
        module._resolve_parameters = partial(_parameters, module._resolve_parameters)
    stacks._provision_resource = partial(_create, stacks._provision_resource)
    stacks._update_resource = partial(_update, stacks._update_resource)
    stacks._delete_resource = partial(_delete, stacks._delete_resource)
    # MiniStack's own CloudFormation forgets it.
    after("AWS::IAM::Role", lambda name, old, new: iam._roles[name].update(PermissionsBoundary=new.get("PermissionsBoundary")))


def _of(stack: str) -> str:
    return _roles.get((get_account_id(), get_region(), stack), "")


def _parameters(resolve: Call, *arguments: Any) -> Any:
    """A template's parameters that lie in Parameter Store, such as the bootstrap's version in every stack of the CDK."""
    found, role = resolve(*arguments), _asking.get()
    for name in sorted(value["SsmName"] for value in found.values() if value.get("SsmName")) if role else ():
        arn = f"arn:aws:ssm:{get_region()}:{get_account_id()}:parameter/{name.lstrip('/')}"
        _put(role, _policies(role), "ssm:GetParameters", arn, {})
    return found


def _create(create: Call, kind: str, logical_id: str, props: Properties, stack: str) -> Any:
    ask(_of(stack), kind, "create", props, "", stack, logical_id)
    return create(kind, logical_id, props, stack)


def _update(update: Call, kind: str, physical_id: str, old: Properties, new: Properties, stack: str, *rest: Any) -> Any:
    replaced = provisioners._replacing_change(kind, old, new)
    if old != new:
        operation, known = ("create", "") if replaced else ("update", physical_id)
        ask(_of(stack), kind, operation, new, known, stack, rest[0] if rest else "")
    return update(kind, physical_id, old, new, stack, *rest)


def _delete(delete: Call, kind: str, physical_id: str, props: Properties, stack: str = "", logical_id: str = "") -> Any:
    ask(_of(stack), kind, "delete", props, physical_id, stack, logical_id)
    return delete(kind, physical_id, props, stack, logical_id)
