"""The role that CloudFormation executes a stack with: what it may not do fails the stack, by the action's name.

MiniStack takes a stack's role and forgets it. Promises, where `Cloud(enforce=True)` asks for it: before a resource is made,
changed or deleted, each action that AWS's own handler of the type would need (`needed_actions`) is put to the policies of the
stack's role, on the resource's ARN. A type whose ARN is not known here is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from ministack.core import iam_evaluator
from ministack.core.responses import get_account_id, get_region
from ministack.services import cloudformation
from ministack.services.cloudformation import changesets, handlers, provisioners, stacks
from needed_actions import needed, read_schemas_from

Properties = Mapping[str, Any]

INVISIBLE = ("AWS::CDK::Metadata", "AWS::CloudFormation::WaitConditionHandle", "AWS::CloudFormation::WaitCondition")
"""Types that call no service."""

PASSED_TO: Mapping[str, str] = {
    "AWS::EKS::Cluster": "eks.amazonaws.com",
    "AWS::EKS::Nodegroup": "eks.amazonaws.com",
    "AWS::EKS::Addon": "pods.eks.amazonaws.com",
    "AWS::EKS::PodIdentityAssociation": "pods.eks.amazonaws.com",
    "AWS::Lambda::Function": "lambda.amazonaws.com",
    "AWS::EC2::FlowLog": "vpc-flow-logs.amazonaws.com",
    "AWS::IAM::InstanceProfile": "ec2.amazonaws.com",
}
"""iam:PassedToService of the role that a property names."""

LINKED_ROLE: Mapping[str, str] = {
    "AWS::EKS::Cluster": "eks.amazonaws.com",
    "AWS::EKS::Nodegroup": "eks-nodegroup.amazonaws.com",
    "AWS::EFS::FileSystem": "elasticfilesystem.amazonaws.com",
    "AWS::AutoScaling::AutoScalingGroup": "autoscaling.amazonaws.com",
}
"""iam:AWSServiceName of the service-linked role that a service makes with its first resource."""

Namer = Callable[[Properties, str, Callable[[int, bool], str]], str]


def _regional(service: str, form: str) -> Namer:
    """`arn:aws:<service>:<region>:<account>:<form>`.

    In the form `{}` is the physical id, `{Property}` a property, `{=Property}` a name, made up where none is given.
    """

    def named(props: Properties, physical_id: str, made_up: Callable[[int, bool], str]) -> str:
        def filled(match: re.Match[str]) -> str:
            inside = match.group(1)
            if not inside:
                return physical_id or "*"
            if inside.startswith("="):
                return physical_id or str(props.get(inside[1:]) or made_up(255, service in ("s3", "ecr")))
            return str(props.get(inside, "*"))

        region = "" if service in ("s3", "iam", "route53", "budgets") else get_region()
        account = "" if service in ("s3", "route53") else get_account_id()
        return f"arn:aws:{service}:{region}:{account}:" + re.sub(r"\{(=?\w*)\}", filled, form)

    return named


ARNS: Mapping[str, Namer] = {
    "AWS::AutoScaling::AutoScalingGroup": _regional(
        "autoscaling", "autoScalingGroup:*:autoScalingGroupName/{=AutoScalingGroupName}"
    ),
    "AWS::AutoScaling::LifecycleHook": _regional("autoscaling", "autoScalingGroup:*:autoScalingGroupName/{AutoScalingGroupName}"),
    "AWS::Budgets::Budget": lambda props, physical_id, made_up: _regional("budgets", "budget/{=BudgetName}")(
        props.get("Budget") or {}, physical_id, made_up
    ),
    "AWS::CloudWatch::Alarm": _regional("cloudwatch", "alarm:{=AlarmName}"),
    "AWS::CloudWatch::Dashboard": lambda props, physical_id, made_up: (
        f"arn:aws:cloudwatch::{get_account_id()}:dashboard/{physical_id or props.get('DashboardName') or made_up(255, False)}"
    ),
    "AWS::EC2::DHCPOptions": _regional("ec2", "dhcp-options/{}"),
    "AWS::EC2::EIP": _regional("ec2", "elastic-ip/*"),
    "AWS::EC2::EIPAssociation": _regional("ec2", "elastic-ip/{AllocationId}"),
    "AWS::EC2::FlowLog": _regional("ec2", "vpc-flow-log/{}"),
    "AWS::EC2::InternetGateway": _regional("ec2", "internet-gateway/{}"),
    "AWS::EC2::KeyPair": _regional("ec2", "key-pair/{KeyName}"),
    "AWS::EC2::LaunchTemplate": _regional("ec2", "launch-template/{}"),
    "AWS::EC2::NetworkInterface": _regional("ec2", "network-interface/{}"),
    "AWS::EC2::NatGateway": _regional("ec2", "natgateway/{}"),
    "AWS::EC2::PlacementGroup": _regional("ec2", "placement-group/{}"),
    "AWS::EC2::Route": _regional("ec2", "route-table/{RouteTableId}"),
    "AWS::EC2::RouteTable": _regional("ec2", "route-table/{}"),
    "AWS::EC2::SecurityGroup": _regional("ec2", "security-group/{}"),
    "AWS::EC2::SecurityGroupEgress": _regional("ec2", "security-group/{GroupId}"),
    "AWS::EC2::SecurityGroupIngress": _regional("ec2", "security-group/{GroupId}"),
    "AWS::EC2::Subnet": _regional("ec2", "subnet/{}"),
    "AWS::EC2::SubnetRouteTableAssociation": _regional("ec2", "route-table/{RouteTableId}"),
    "AWS::EC2::Volume": _regional("ec2", "volume/{}"),
    "AWS::EC2::VPC": _regional("ec2", "vpc/{}"),
    "AWS::EC2::VPCDHCPOptionsAssociation": _regional("ec2", "vpc/{VpcId}"),
    "AWS::EC2::VPCEndpoint": _regional("ec2", "vpc-endpoint/{}"),
    "AWS::EC2::VPCGatewayAttachment": _regional("ec2", "vpc/{VpcId}"),
    "AWS::ECR::Repository": _regional("ecr", "repository/{=RepositoryName}"),
    "AWS::EFS::AccessPoint": _regional("elasticfilesystem", "access-point/{}"),
    "AWS::EFS::FileSystem": _regional("elasticfilesystem", "file-system/{}"),
    "AWS::EFS::MountTarget": _regional("elasticfilesystem", "file-system/{FileSystemId}"),
    "AWS::EKS::AccessEntry": _regional("eks", "access-entry/{ClusterName}/*"),
    "AWS::EKS::Addon": _regional("eks", "addon/{ClusterName}/{AddonName}/*"),
    "AWS::EKS::Cluster": _regional("eks", "cluster/{=Name}"),
    "AWS::EKS::Nodegroup": _regional("eks", "nodegroup/{ClusterName}/*"),
    "AWS::EKS::PodIdentityAssociation": _regional("eks", "podidentityassociation/{ClusterName}/*"),
    "AWS::IAM::Group": _regional("iam", "group/{=GroupName}"),
    "AWS::IAM::InstanceProfile": _regional("iam", "instance-profile/{=InstanceProfileName}"),
    "AWS::IAM::ManagedPolicy": _regional("iam", "policy/{=ManagedPolicyName}"),
    # The issuer of a real cluster; the emulator's is its own address.
    "AWS::IAM::OIDCProvider": lambda props, physical_id, made_up: (
        f"arn:aws:iam::{get_account_id()}:oidc-provider/oidc.eks.{get_region()}.amazonaws.com/id/0123456789ABCDEF"
    ),
    "AWS::IAM::Policy": _regional("iam", "role/*"),
    "AWS::IAM::Role": _regional("iam", "role/{=RoleName}"),
    "AWS::KMS::Alias": _regional("kms", "{AliasName}"),
    "AWS::KMS::Key": _regional("kms", "key/{}"),
    "AWS::Lambda::Function": _regional("lambda", "function:{=FunctionName}"),
    "AWS::Lambda::Permission": _regional("lambda", "function:{FunctionName}"),
    "AWS::Logs::LogGroup": _regional("logs", "log-group:{=LogGroupName}:*"),
    "AWS::Logs::ResourcePolicy": _regional("logs", "*"),
    "AWS::Route53::HostedZone": _regional("route53", "hostedzone/{}"),
    "AWS::Route53::RecordSet": _regional("route53", "hostedzone/{HostedZoneId}"),
    "AWS::S3::Bucket": _regional("s3", "{=BucketName}"),
    "AWS::S3::BucketPolicy": _regional("s3", "{Bucket}"),
    "AWS::SecretsManager::Secret": lambda props, physical_id, made_up: _regional("secretsmanager", "secret:{=Name}")(
        props, f"{props.get('Name')}-000000" if physical_id else "", made_up
    ),
    "AWS::SNS::Subscription": lambda props, physical_id, made_up: str(props.get("TopicArn", "*")),
    "AWS::SNS::Topic": _regional("sns", "{=TopicName}"),
    "AWS::SNS::TopicPolicy": lambda props, physical_id, made_up: str(([*props.get("Topics", []), "*"])[0]),
    "AWS::SSM::Document": _regional("ssm", "document/{=Name}"),
    "AWS::SSM::Parameter": lambda props, physical_id, made_up: _regional("ssm", "parameter/{}")(
        props, (physical_id or str(props.get("Name") or f"CFN-{made_up(255, False)}")).lstrip("/"), made_up
    ),
}
"""A type's own ARN."""

ON: Mapping[str, Namer] = {
    # Actions whose resource is another than the type's own (AWS's service authorization reference).
    "eks:CreateAccessEntry": _regional("eks", "cluster/{ClusterName}"),
    "eks:CreateAddon": _regional("eks", "cluster/{ClusterName}"),
    "eks:CreateNodegroup": _regional("eks", "cluster/{ClusterName}"),
    "eks:CreatePodIdentityAssociation": _regional("eks", "cluster/{ClusterName}"),
    "elasticfilesystem:CreateAccessPoint": _regional("elasticfilesystem", "file-system/{FileSystemId}"),
    "AWS::EFS::MountTarget ec2:CreateNetworkInterface": _regional("ec2", "network-interface/*"),
    "AWS::EFS::MountTarget ec2:DeleteNetworkInterface": _regional("ec2", "network-interface/*"),
    "AWS::EFS::MountTarget ec2:ModifyNetworkInterfaceAttribute": _regional("ec2", "network-interface/*"),
    "ec2:RunInstances": _regional("ec2", "instance/*"),
}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _resources(
    action: str, kind: str, props: Properties, own: str, name: Callable[[Namer], str]
) -> list[tuple[str, dict[str, str]]]:
    """(ARN, condition keys) of everything that `action` is asked for."""
    if action == "iam:PassRole":
        roles = sorted({text for text in _strings(props) if re.fullmatch(r"arn:aws:iam::\d+:role/.+", text)})
        if kind == "AWS::IAM::InstanceProfile":
            roles = [f"arn:aws:iam::{get_account_id()}:role/{role}" for role in props.get("Roles", [])]
        return [(role, {"iam:passedtoservice": PASSED_TO.get(kind, "")}) for role in roles]
    if action == "iam:CreateServiceLinkedRole":
        service = LINKED_ROLE[kind]
        return [(f"arn:aws:iam::{get_account_id()}:role/aws-service-role/{service}/*", {"iam:awsservicename": service})]
    if action.startswith("kms:") and not kind.startswith("AWS::KMS::"):
        grant = {"kms:grantisforawsresource": "true"} if action == "kms:CreateGrant" else {}
        return [(key, grant) for key in sorted({text for text in _strings(props) if re.match(r"arn:aws:kms:.+:key/", text)})]
    if kind == "AWS::EC2::KeyPair" and action.startswith("ssm:"):
        return [(f"arn:aws:ssm:{get_region()}:{get_account_id()}:parameter/ec2/keypair/*", {})]
    if action in ("kms:CreateKey", "route53:CreateHostedZone", "secretsmanager:GetRandomPassword"):
        return [("*", {})]
    if policy := re.fullmatch(r"iam:(Attach|Detach|Put|Delete)(Role|Group|User)Policy", action):
        entity = policy.group(2)
        if kind in ("AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"):
            entities = [f"arn:aws:iam::{get_account_id()}:{entity.lower()}/{one}" for one in props.get(f"{entity}s") or []]
            attached = [own]
        else:
            entities, attached = [own], list(props.get("ManagedPolicyArns") or [])
        if policy.group(1) in ("Put", "Delete"):
            return [(one, {}) for one in entities]
        return [(one, {"iam:policyarn": arn}) for one in entities for arn in attached]
    elsewhere = ON.get(f"{kind} {action}") or ON.get(action)
    return [(name(elsewhere) if elsewhere else own, {})]


def ask(
    role: str, kind: str, operation: str, old: Properties, new: Properties, physical_id: str, stack: str, logical_id: str
) -> None:
    """Refuse what `role` may not do: ValueError as CloudFormation words it."""
    if kind.startswith("Custom::") or kind in INVISIBLE or kind == "AWS::CloudFormation::CustomResource":
        # CloudFormation invokes the function behind a custom resource with the stack's role.
        token = str(new.get("ServiceToken", ""))
        if token:
            _put(role, "lambda:InvokeFunction", token, {})
        return
    if kind not in ARNS:
        raise ValueError(f"the emulator knows no ARN of {kind}: add it to rehearsal/emulator/permissions.py")

    def made_up(longest: int, lower: bool) -> str:
        return str(provisioners._physical_name(stack, logical_id, lowercase=lower, max_len=longest))

    identifier = physical_id.rpartition("/")[2] if physical_id.startswith("arn:") else physical_id
    own = ARNS[kind](new, identifier, made_up)
    for action in needed(kind, operation, old, new):
        for arn, context in _resources(action, kind, new, own, lambda namer: namer(new, identifier, made_up)):
            _put(role, action, arn, context)


def _put(role: str, action: str, arn: str, context: Mapping[str, str]) -> None:
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
    if iam_evaluator.evaluate(asked, iam_evaluator._gather_role_policies(name, account)).decision != "Allow":
        raise ValueError(
            f"User: {asked.principal_arn} is not authorized to perform: {action} on resource: {arn} because no identity-based "
            f"policy allows the {action} action (Status Code: 403, AccessDenied)"
        )


_roles: dict[tuple[str, str, str], str] = {}
"""(account, region, stack name) -> the role that the stack was last given."""
_asking: ContextVar[str] = ContextVar("_asking", default="")
"""The role of the stack that the present request is about."""


def apply(schemas: Path) -> None:
    """Remember each stack's role, and ask it before each resource."""
    read_schemas_from(schemas)
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
        module._resolve_parameters = _asked_parameters(module._resolve_parameters)
    stacks._provision_resource = _asked_create(stacks._provision_resource)
    stacks._update_resource = _asked_update(stacks._update_resource)
    stacks._delete_resource = _asked_delete(stacks._delete_resource)


def _of(stack: str) -> str:
    return _roles.get((get_account_id(), get_region(), stack), "")


def _asked_parameters(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """A template's parameters that lie in Parameter Store, such as the bootstrap's version in every stack of the CDK."""

    def resolved(*arguments: Any) -> Any:
        found = resolve(*arguments)
        role = _asking.get()
        for name in sorted(value["SsmName"] for value in found.values() if value.get("SsmName")) if role else ():
            _put(role, "ssm:GetParameters", f"arn:aws:ssm:{get_region()}:{get_account_id()}:parameter/{name.lstrip('/')}", {})
        return found

    return resolved


def _asked_create(create: Callable[..., Any]) -> Callable[..., Any]:
    def created(kind: str, logical_id: str, props: Properties, stack: str) -> Any:
        if role := _of(stack):
            ask(role, kind, "create", {}, props, "", stack, logical_id)
        return create(kind, logical_id, props, stack)

    return created


def _asked_update(update: Callable[..., Any]) -> Callable[..., Any]:
    def updated(
        kind: str, physical_id: str, old: Properties, new: Properties, stack: str, logical_id: str = "", *rest: Any
    ) -> Any:
        if (role := _of(stack)) and old != new:
            if provisioners._replacing_change(kind, old, new):
                ask(role, kind, "create", {}, new, "", stack, logical_id)
            else:
                ask(role, kind, "update", old, new, physical_id, stack, logical_id)
        return update(kind, physical_id, old, new, stack, logical_id, *rest)

    return updated


def _asked_delete(delete: Callable[..., Any]) -> Callable[..., Any]:
    def deleted(kind: str, physical_id: str, props: Properties, stack: str = "", logical_id: str = "") -> Any:
        if role := _of(stack):
            ask(role, kind, "delete", {}, props, physical_id, stack, logical_id)
        return delete(kind, physical_id, props, stack, logical_id)

    return deleted
