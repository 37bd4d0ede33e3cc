"""The CloudFormation types that the app needs and MiniStack lacks.

Promises: each type below is made, changed and deleted through its service's own API (`calls.client`), so that
boto3 sees what was deployed; a property that the API does not know fails the stack by name; a type that is
neither here nor in MiniStack fails the stack by name, because MiniStack's table is only added to. What
is not checked is in docs/emulator.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

import jmespath
from botocore import xform_name
from botocore.exceptions import ClientError
from calls import client, service_model
from ministack.core.responses import get_account_id
from ministack.services import eks
from ministack.services.cloudformation import provisioners

Properties = Mapping[str, Any]
Made = tuple[str, dict[str, Any]]
"""A resource's physical id and its attributes for Fn::GetAtt."""

TYPES: dict[str, ResourceType] = {}


class AllBut(tuple[str, ...]):
    """All properties but these."""

    def __contains__(self, name: object) -> bool:
        return name not in tuple(self)


@dataclass(frozen=True)
class ResourceType:
    """How one type lives in MiniStack's engine."""

    create: Callable[[str, Properties, str], Made]
    delete: Callable[[str, Properties], object]
    update: Callable[[str, Properties, Properties], Made] | None = None
    """In place: (physical id, old, new). Properties in `replacing` never come here."""
    replacing: Container[str] = AllBut(("Tags",))
    """Properties whose change makes a new resource, by the resource reference."""
    tags: tuple[str, str] | None = ("Tags", "list")
    """The tag property and its shape."""
    snapshot: Callable[[str, Properties], object] | None = None
    """What `DeletionPolicy: Snapshot` takes before the delete."""


def apply() -> None:
    """Add every type to MiniStack's tables; one that MiniStack knows by now must leave this module."""
    import documents
    import machine_types

    TYPES.update(machine_types.TYPES | documents.TYPES)
    for name, kind in TYPES.items():
        if name in provisioners._RESOURCE_HANDLERS:
            raise RuntimeError(f"MiniStack knows {name} itself: take it out of resource_types.py")
        handler: dict[str, Any] = {"create": kind.create, "delete": _gone_is_deleted(kind.delete)}
        if kind.update is not None:
            update = kind.update
            handler["update"] = lambda physical_id, old, new, stack, update=update: update(physical_id, old, new)
        if kind.snapshot is not None:
            handler["snapshot"] = kind.snapshot
        provisioners._RESOURCE_HANDLERS[name] = handler
        provisioners._REPLACING_PROPERTIES[name] = kind.replacing
        if kind.tags:
            provisioners._STACK_TAG_PROPERTY[name] = kind.tags


def _gone_is_deleted(delete: Callable[[str, Properties], object]) -> Callable[[str, Properties], None]:
    """CloudFormation takes a resource that is already gone as deleted."""

    @functools.wraps(delete)
    def deleted(physical_id: str, props: Properties) -> None:
        try:
            delete(physical_id, props)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if not ("NotFound" in code or code in ("NoSuchEntity", "InvalidPlacementGroup.Unknown")):
                raise

    return deleted


def _name(stack: str, logical_id: str, longest: int) -> str:
    return str(provisioners._physical_name(stack, logical_id, max_len=longest))


def _pick(props: Properties, *names: str) -> dict[str, Any]:
    """The named properties that are set; any other property but the tags is refused."""
    unknown = sorted(set(props) - set(names) - {"Tags"})
    if unknown:
        raise ValueError(f"Encountered unsupported property {', '.join(unknown)}")
    return {name: props[name] for name in names if name in props}


def _specified(kind: str, props: Properties) -> dict[str, Any]:
    """EC2's way to tag what it creates."""
    tags = props.get("Tags")
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": tags}]} if tags else {}


def _retag(physical_id: str, old: Properties, new: Properties) -> None:
    """EC2: tags change in place."""
    provisioners._ec2_apply_tags(physical_id, dict(new), dict(old))


# EC2.


def _told(props: Properties) -> dict[str, Any]:
    """Everything but the tags: botocore refuses what the API does not know."""
    return {name: value for name, value in props.items() if name != "Tags"}


def _ec2(
    create: str, kind: str, identifier: str, attribute: str, delete: Callable[[str], object], told: Callable[..., Any] = _told
) -> ResourceType:
    """A type whose tags alone can change, made by the call `create`, in whose answer `identifier` is a path."""

    def made(logical_id: str, props: Properties, stack: str) -> Made:
        answer = getattr(client("ec2"), create)(**told(props), **_specified(kind, props))
        found: str = jmespath.search(identifier, answer)
        return found, {attribute: found}

    def retagged(physical_id: str, old: Properties, new: Properties) -> Made:
        _retag(physical_id, old, new)
        return physical_id, {attribute: physical_id}

    return ResourceType(made, lambda physical_id, props: delete(physical_id), retagged)


def _address_of(public_ip: str) -> dict[str, Any]:
    found = client("ec2").describe_addresses()["Addresses"]
    return next((dict(address) for address in found if address["PublicIp"] == public_ip), {})


def _eip_create(logical_id: str, props: Properties, stack: str) -> Made:
    made = client("ec2").allocate_address(**_told(props), **_specified("elastic-ip", props))
    return made["PublicIp"], {"AllocationId": made["AllocationId"], "PublicIp": made["PublicIp"]}


def _eip_update(physical_id: str, old: Properties, new: Properties) -> Made:
    allocation = _address_of(physical_id)["AllocationId"]
    _retag(allocation, old, new)
    return physical_id, {"AllocationId": allocation, "PublicIp": physical_id}


def _eip_delete(physical_id: str, props: Properties) -> None:
    if address := _address_of(physical_id):
        client("ec2").release_address(AllocationId=address["AllocationId"])


TYPES["AWS::EC2::EIP"] = ResourceType(_eip_create, _eip_delete, _eip_update)


TYPES["AWS::EC2::NatGateway"] = _ec2(
    "create_nat_gateway",
    "natgateway",
    "NatGateway.NatGatewayId",
    "NatGatewayId",
    lambda gateway: client("ec2").delete_nat_gateway(NatGatewayId=gateway),
)


def _flow_log(props: Properties) -> dict[str, Any]:
    given = _told(props)
    return {"ResourceIds": [given.pop("ResourceId")], **given}


TYPES["AWS::EC2::FlowLog"] = _ec2(
    "create_flow_logs",
    "flow-log",  # So MiniStack calls what AWS calls vpc-flow-log.
    "FlowLogIds[0]",
    "Id",
    lambda log: client("ec2").delete_flow_logs(FlowLogIds=[log]),
    _flow_log,
)


def _rule(direction: str) -> ResourceType:
    """AWS::EC2::SecurityGroupIngress and Egress: one rule each."""
    peer = "Source" if direction == "ingress" else "Destination"
    names = ("GroupId", "IpProtocol", "FromPort", "ToPort", "CidrIp", "CidrIpv6", "Description", f"{peer}SecurityGroupId")

    def create(logical_id: str, props: Properties, stack: str) -> Made:
        given = _pick(props, *names)
        group = given["GroupId"]
        permission = provisioners._ec2_sg_permissions([given])[0]
        permission = {key: value for key, value in permission.items() if value not in ([], None)}
        before = rules(group)
        call = getattr(client("ec2"), f"authorize_security_group_{direction}")
        made = call(GroupId=group, IpPermissions=[permission])["SecurityGroupRules"][0]["SecurityGroupRuleId"]
        if made in before:
            # MiniStack takes a rule twice in silence, AWS does not.
            raise ValueError(f"InvalidPermission.Duplicate: the specified rule already exists in {group}")
        return made, {"Id": made}

    def delete(physical_id: str, props: Properties) -> None:
        call = getattr(client("ec2"), f"revoke_security_group_{direction}")
        call(GroupId=props["GroupId"], SecurityGroupRuleIds=[physical_id])

    return ResourceType(create, delete, tags=None)


def rules(group: str) -> set[str]:
    """The identifiers of a security group's rules."""
    filters = [{"Name": "group-id", "Values": [group]}]
    found = client("ec2").describe_security_group_rules(Filters=filters)["SecurityGroupRules"]
    return {rule["SecurityGroupRuleId"] for rule in found}


TYPES["AWS::EC2::SecurityGroupIngress"] = _rule("ingress")
TYPES["AWS::EC2::SecurityGroupEgress"] = _rule("egress")


def _placement_create(logical_id: str, props: Properties, stack: str) -> Made:
    name = _name(stack, logical_id, 255)
    client("ec2").create_placement_group(GroupName=name, **_told(props), **_specified("placement-group", props))
    return name, {"GroupName": name}


TYPES["AWS::EC2::PlacementGroup"] = ResourceType(
    _placement_create, lambda physical_id, props: client("ec2").delete_placement_group(GroupName=physical_id)
)


def _private_key(key_pair_id: str) -> str:
    """Where CloudFormation keeps the private key of a pair that it made."""
    return f"/ec2/keypair/{key_pair_id}"


def _key_pair_create(logical_id: str, props: Properties, stack: str) -> Made:
    made = client("ec2").create_key_pair(**_told(props), **_specified("key-pair", props))
    client("ssm").put_parameter(Name=_private_key(made["KeyPairId"]), Value=made["KeyMaterial"], Type="SecureString")
    return props["KeyName"], {"KeyPairId": made["KeyPairId"], "KeyFingerprint": made["KeyFingerprint"]}


def _key_pair_delete(physical_id: str, props: Properties) -> None:
    [pair] = client("ec2").describe_key_pairs(KeyNames=[physical_id])["KeyPairs"]
    client("ec2").delete_key_pair(KeyName=physical_id)
    client("ssm").delete_parameter(Name=_private_key(pair["KeyPairId"]))


TYPES["AWS::EC2::KeyPair"] = ResourceType(_key_pair_create, _key_pair_delete, replacing=AllBut())


def _dhcp_options(props: Properties) -> dict[str, Any]:
    names = {"DomainName": "domain-name", "DomainNameServers": "domain-name-servers", "NtpServers": "ntp-servers"}
    lists = {name: value if isinstance(value, list) else [value] for name, value in _pick(props, *names).items()}
    return {"DhcpConfigurations": [{"Key": names[name], "Values": [*map(str, value)]} for name, value in lists.items()]}


TYPES["AWS::EC2::DHCPOptions"] = _ec2(
    "create_dhcp_options",
    "dhcp-options",
    "DhcpOptions.DhcpOptionsId",
    "DhcpOptionsId",
    lambda options: client("ec2").delete_dhcp_options(DhcpOptionsId=options),
    _dhcp_options,
)


def _dhcp_associate(logical_id: str, props: Properties, stack: str) -> Made:
    client("ec2").associate_dhcp_options(**props)
    return f"{props['DhcpOptionsId']}|{props['VpcId']}", {}


TYPES["AWS::EC2::VPCDHCPOptionsAssociation"] = ResourceType(
    _dhcp_associate,
    lambda physical_id, props: client("ec2").associate_dhcp_options(DhcpOptionsId="default", VpcId=props["VpcId"]),
    tags=None,
)

# EKS: its API writes the same members with a small first letter.


def _eks_call(operation: str, props: Properties, without: Container[str], **more: Any) -> dict[str, Any]:
    """What a call answers that is given everything but the tags; what the call does not know is refused."""
    known = [name[0].upper() + name[1:] for name in service_model("eks").operation_model(operation).input_shape.members]
    given = _pick({name: value for name, value in _told(props).items() if name not in without}, *known)
    answer = getattr(client("eks"), xform_name(operation))(**{**more, **provisioners._pascal_to_camel(given)})
    return next(value for name, value in answer.items() if name != "ResponseMetadata")


def _tag_map(props: Properties) -> dict[str, str]:
    return dict(provisioners._tag_map(props.get("Tags")))


def _eks_retag(arn: str, old: Properties, new: Properties) -> None:
    before, after = _tag_map(old), _tag_map(new)
    if gone := sorted(before.keys() - after.keys()):
        client("eks").untag_resource(resourceArn=arn, tagKeys=gone)
    if after != before:
        client("eks").tag_resource(resourceArn=arn, tags=after)


def _addon_create(logical_id: str, props: Properties, stack: str) -> Made:
    made = _eks_call("CreateAddon", props, (), tags=_tag_map(props))
    return f"{props['ClusterName']}|{props['AddonName']}", {"Arn": made["addonArn"]}


def _addon_update(physical_id: str, old: Properties, new: Properties) -> Made:
    _eks_call("UpdateAddon", new, (), podIdentityAssociations=[])
    arn = client("eks").describe_addon(clusterName=new["ClusterName"], addonName=new["AddonName"])["addon"]["addonArn"]
    _eks_retag(arn, old, new)
    return physical_id, {"Arn": arn}


TYPES["AWS::EKS::Addon"] = ResourceType(
    _addon_create,
    lambda physical_id, props: client("eks").delete_addon(clusterName=props["ClusterName"], addonName=props["AddonName"]),
    _addon_update,
    replacing=("AddonName", "ClusterName"),
)


def _policies(props: Properties) -> dict[str, Any]:
    return {
        policy["PolicyArn"]: provisioners._pascal_to_camel(policy["AccessScope"]) for policy in props.get("AccessPolicies") or []
    }


def _entry(props: Properties) -> dict[str, str]:
    return {"clusterName": props["ClusterName"], "principalArn": props["PrincipalArn"]}


def _entry_create(logical_id: str, props: Properties, stack: str) -> Made:
    made = _eks_call("CreateAccessEntry", props, ("AccessPolicies",), tags=_tag_map(props))
    _entry_policies({}, _policies(props), props)
    return f"{props['PrincipalArn']}|{props['ClusterName']}", {"AccessEntryArn": made["accessEntryArn"]}


def _entry_policies(old: dict[str, Any], new: dict[str, Any], props: Properties) -> None:
    who = _entry(props)
    for arn in old.keys() - new.keys():
        client("eks").disassociate_access_policy(**who, policyArn=arn)
    for arn, scope in new.items():
        if old.get(arn) != scope:
            client("eks").associate_access_policy(**who, policyArn=arn, accessScope=scope)


def _entry_update(physical_id: str, old: Properties, new: Properties) -> Made:
    who = _entry(new)
    client("eks").update_access_entry(**who, kubernetesGroups=new.get("KubernetesGroups", []))
    _entry_policies(_policies(old), _policies(new), new)
    arn = client("eks").describe_access_entry(**who)["accessEntry"]["accessEntryArn"]
    _eks_retag(arn, old, new)
    return physical_id, {"AccessEntryArn": arn}


TYPES["AWS::EKS::AccessEntry"] = ResourceType(
    _entry_create,
    lambda physical_id, props: client("eks").delete_access_entry(**_entry(props)),
    _entry_update,
    replacing=AllBut(("AccessPolicies", "KubernetesGroups", "Tags")),
)


def _association_create(logical_id: str, props: Properties, stack: str) -> Made:
    made = _eks_call("CreatePodIdentityAssociation", props, (), tags=_tag_map(props))
    return made["associationArn"], {"AssociationArn": made["associationArn"], "AssociationId": made["associationId"]}


def _association_id(physical_id: str) -> str:
    return physical_id.rpartition("/")[2]


def _association_update(physical_id: str, old: Properties, new: Properties) -> Made:
    identifier = {"associationId": _association_id(physical_id)}
    made = _eks_call("UpdatePodIdentityAssociation", new, ("Namespace", "ServiceAccount"), **identifier)
    # MiniStack's TagResource does not know associations.
    eks._tags[physical_id] = made["tags"] = _tag_map(new)
    return physical_id, {"AssociationArn": physical_id, "AssociationId": made["associationId"]}


TYPES["AWS::EKS::PodIdentityAssociation"] = ResourceType(
    _association_create,
    lambda physical_id, props: client("eks").delete_pod_identity_association(
        clusterName=props["ClusterName"], associationId=_association_id(physical_id)
    ),
    _association_update,
    replacing=("ClusterName", "Namespace", "ServiceAccount"),
)

# IAM.


def _group_create(logical_id: str, props: Properties, stack: str) -> Made:
    name = _name(stack, logical_id, 128)
    _pick(props, "ManagedPolicyArns")
    client("iam").create_group(GroupName=name)
    return _group_update(name, {}, props)


def _group_update(name: str, old: Properties, new: Properties) -> Made:
    before, after = (set(props.get("ManagedPolicyArns") or ()) for props in (old, new))
    for arn in sorted(after - before):
        client("iam").attach_group_policy(GroupName=name, PolicyArn=arn)
    for arn in sorted(before - after):
        client("iam").detach_group_policy(GroupName=name, PolicyArn=arn)
    return name, {"Arn": client("iam").get_group(GroupName=name)["Group"]["Arn"]}


def _group_delete(name: str, props: Properties) -> None:
    _group_update(name, props, {})
    client("iam").delete_group(GroupName=name)


TYPES["AWS::IAM::Group"] = ResourceType(
    _group_create, _group_delete, _group_update, replacing=AllBut(("ManagedPolicyArns",)), tags=None
)


def _provider_create(logical_id: str, props: Properties, stack: str) -> Made:
    given = _pick(props, "Url", "ClientIdList")
    made = client("iam").create_open_id_connect_provider(
        Url=given["Url"], ClientIDList=given.get("ClientIdList", []), Tags=props.get("Tags") or []
    )
    return made["OpenIDConnectProviderArn"], {"Arn": made["OpenIDConnectProviderArn"]}


TYPES["AWS::IAM::OIDCProvider"] = ResourceType(
    _provider_create,
    lambda physical_id, props: client("iam").delete_open_id_connect_provider(OpenIDConnectProviderArn=physical_id),
)

# Budgets.


def _budget(props: Properties, name: str) -> dict[str, Any]:
    budget = {key: value for key, value in props["Budget"].items() if key != "BudgetName"}
    if limit := budget.get("BudgetLimit"):
        budget["BudgetLimit"] = limit | {"Amount": str(limit["Amount"])}
    return {"BudgetName": name, **budget}


def _notifications(props: Properties) -> list[dict[str, Any]]:
    found = []
    for item in props.get("NotificationsWithSubscribers") or []:
        notification = item["Notification"] | {"Threshold": float(item["Notification"]["Threshold"])}
        found.append({"Notification": notification, "Subscribers": item["Subscribers"]})
    return found


def _budget_create(logical_id: str, props: Properties, stack: str) -> Made:
    given = _pick(props, "Budget", "NotificationsWithSubscribers", "ResourceTags")
    name = given["Budget"].get("BudgetName") or _name(stack, logical_id, 100)
    client("budgets").create_budget(
        AccountId=get_account_id(), Budget=_budget(props, name), NotificationsWithSubscribers=_notifications(props)
    )
    return name, {}


def _budget_update(physical_id: str, old: Properties, new: Properties) -> Made:
    budgets, account = client("budgets"), get_account_id()
    budgets.update_budget(AccountId=account, NewBudget=_budget(new, physical_id))
    if _notifications(old) != _notifications(new):
        for item in _notifications(old):
            budgets.delete_notification(AccountId=account, BudgetName=physical_id, Notification=item["Notification"])
        for item in _notifications(new):
            budgets.create_notification(AccountId=account, BudgetName=physical_id, **item)
    return physical_id, {}


TYPES["AWS::Budgets::Budget"] = ResourceType(
    _budget_create,
    lambda physical_id, props: client("budgets").delete_budget(AccountId=get_account_id(), BudgetName=physical_id),
    _budget_update,
    replacing=(),
    tags=None,
)
