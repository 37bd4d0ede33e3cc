"""The CloudFormation types that the app needs and MiniStack lacks.

Promises: each type of resource_types.yaml, and each below, is created, changed and deleted through
its service's own API (`calls.call`), so boto3 sees what was deployed. A property that the API does
not know fails the stack by name. A type that is neither here nor in MiniStack fails the stack by
name, because we only add to MiniStack's table. docs/emulator.md lists what is not checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jmespath
import yaml
from botocore.exceptions import ClientError
from calls import call, client, members
from ministack.core.responses import AccountRegionScopedDict, get_account_id
from ministack.services import eks
from ministack.services.cloudformation import provisioners

Properties = Mapping[str, Any]
Made = tuple[str, dict[str, Any]]
"""A resource's physical id and its attributes for Fn::GetAtt."""


Call = Callable[..., Any]
"""A handler that another function wraps."""


class AllBut(tuple[str, ...]):
    """Contains every property except these."""

    def __contains__(self, name: object) -> bool:
        return name not in tuple(self)


@dataclass(frozen=True)
class ResourceType:
    """The handlers of one type in MiniStack's engine."""

    create: Callable[[str, Properties, str], Made]
    delete: Callable[[str, Properties], object]
    update: Callable[[str, Properties, Properties], Made] | None = None
    """Updates in place: (physical id, old, new). A change of a property in `replacing` never gets
    here.
    """
    replacing: Container[str] = AllBut(("Tags",))
    """Properties whose change replaces the resource, according to the resource reference."""
    tags: bool = True
    snapshot: Callable[[str, Properties], object] | None = None
    """Takes the snapshot for `DeletionPolicy: Snapshot` before the delete."""


def add(types: Mapping[str, ResourceType]) -> None:
    """Adds types to MiniStack's tables. Raises RuntimeError for one that MiniStack knows by now: it
    must leave this folder.
    """
    for name, kind in types.items():
        if name in provisioners._RESOURCE_HANDLERS:
            raise RuntimeError(f"MiniStack knows {name} itself: take it out")
        handler: dict[str, Any] = {"create": kind.create, "delete": _gone_is_deleted(kind.delete)}
        if kind.update is not None:
            handler["update"] = lambda physical_id, old, new, stack, update=kind.update: update(
                physical_id, old, new
            )
        if kind.snapshot is not None:
            handler["snapshot"] = kind.snapshot
        provisioners._RESOURCE_HANDLERS[name] = handler
        provisioners._REPLACING_PROPERTIES[name] = kind.replacing
        if kind.tags:
            provisioners._STACK_TAG_PROPERTY[name] = ("Tags", "list")


def around(kind: str, **wrappers: Call) -> None:
    """Wraps a type's `create`, `update` or `delete` in a function, which gets the handler and then
    the handler's arguments.
    """
    handlers = provisioners._RESOURCE_HANDLERS[kind]
    handlers |= {
        name: functools.partial(wrapper, handlers[name]) for name, wrapper in wrappers.items()
    }


def before(kind: str, check: Callable[[Properties], None]) -> None:
    """Lets `check` refuse the properties that a resource would be created with or changed to."""

    def checked(make: Call, *given: Any) -> Made:
        check(given[1] if len(given) == 3 else given[2])
        return make(*given)

    around(kind, create=checked, update=checked)


def after(
    kind: str, complete: Callable[[str, Properties, Properties], dict[str, Any] | None]
) -> None:
    """Calls `complete` with (physical id, old, new properties) after create and update, to add what
    they drop, and attributes.
    """

    def created(create: Call, logical_id: str, props: Properties, stack: str) -> Made:
        physical_id, attributes = create(logical_id, props, stack)
        try:
            return physical_id, attributes | (complete(physical_id, {}, props) or {})
        except Exception:
            provisioners._RESOURCE_HANDLERS[kind]["delete"](physical_id, props)
            raise

    def updated(
        update: Call, physical_id: str, old: Properties, new: Properties, *rest: Any
    ) -> Made:
        updated_id, attributes = update(physical_id, old, new, *rest)
        return updated_id, attributes | (
            complete(updated_id, old if updated_id == physical_id else {}, new) or {}
        )

    around(kind, create=created, update=updated)


def apply() -> None:
    """Adds every type of this folder except those of documents.py."""
    rows = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    add({name: _by_calls(row) for name, row in rows.items()} | TYPES)
    after("AWS::EKS::AccessEntry", _entry_policies)
    after("AWS::IAM::Group", _group_policies)
    around("AWS::IAM::Group", delete=_group_delete)


def _gone_is_deleted(
    delete: Callable[[str, Properties], object],
) -> Callable[[str, Properties], None]:
    """Wraps `delete`: a resource that is already gone counts as deleted, as in CloudFormation."""

    @functools.wraps(delete)
    def deleted(physical_id: str, props: Properties) -> None:
        try:
            delete(physical_id, props)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if not (
                "NotFound" in code or code in ("NoSuchEntity", "InvalidPlacementGroup.Unknown")
            ):
                raise

    return deleted


def only(props: Properties, *names: str) -> None:
    """Raises ValueError for any property except these and the tags."""
    if unknown := sorted(props.keys() - {*names, "Tags"}):
        raise ValueError(f"Encountered unsupported property {', '.join(unknown)}")


def _found(paths: Mapping[str, str] | None, properties: Properties) -> dict[str, Any]:
    """The value at each path, where there is one."""
    values = {name: jmespath.search(path, properties) for name, path in (paths or {}).items()}
    return {name: value for name, value in values.items() if value is not None}


def _by_calls(row: Mapping[str, Any]) -> ResourceType:
    """The type that a row of resource_types.yaml describes."""
    service, create, apart = row["service"], row["create"], {*row.get("apart", ()), "Tags"}
    kept = AccountRegionScopedDict()
    """Attributes, and the identifier that carries the tags, by physical id."""

    def known(physical_id: str, props: Properties) -> dict[str, Any]:
        return {
            **props,
            **kept.get(physical_id, [{}])[0],
            "id": physical_id,
            "account": get_account_id(),
        }

    def given(
        props: Properties, paths: Mapping[str, str] | None, seen: Properties
    ) -> dict[str, Any]:
        return {
            **{name: value for name, value in props.items() if name not in apart},
            **_found(paths, seen),
        }

    def made(logical_id: str, props: Properties, stack: str) -> Made:
        made_up = str(
            provisioners._physical_name(stack, logical_id, max_len=row.get("longest", 255))
        )
        seen = {**props, "made_up": made_up, "account": get_account_id()}
        tags = {"Tags": props.get("Tags") or [], "tags": provisioners._tag_map(props.get("Tags"))}
        tags_ = {name: value for name, value in tags.items() if name in members(service, create)}
        seen |= call(service, create, {**given(props, row.get("with"), seen), **tags_})
        physical_id: str = jmespath.search(row["id"], seen)
        attributes = _found(row.get("attributes"), seen)
        kept[physical_id] = (
            attributes,
            jmespath.search(row.get("tags", "id"), {**seen, "id": physical_id}),
        )
        if not tags_:
            retagged(physical_id, {}, props)
        return physical_id, attributes

    def retagged(physical_id: str, old: Properties, new: Properties) -> None:
        on = kept[physical_id][1]
        if service == "ec2" and "tags" in row:
            provisioners._ec2_apply_tags(on, dict(new), dict(old))
        elif service == "eks":
            before, after = (provisioners._tag_map(props.get("Tags")) for props in (old, new))
            eks._tags[on] = {
                key: value for key, value in eks._tags.get(on, {}).items() if key not in before
            } | after

    def updated(physical_id: str, old: Properties, new: Properties) -> Made:
        for operation, paths in row.get("update", {}).items():
            possible = {name.lower() for name in members(service, operation)}
            changes = given(new, paths, known(physical_id, new))
            call(
                service,
                operation,
                {name: value for name, value in changes.items() if name.lower() in possible},
            )
        retagged(physical_id, old, new)
        return physical_id, kept[physical_id][0]

    def each(calls: Mapping[str, Any], physical_id: str, props: Properties) -> None:
        for operation, paths in calls.items():
            call(service, operation, _found(paths, known(physical_id, props)))

    snapshot = functools.partial(each, row["snapshot"]) if "snapshot" in row else None
    replacing = row.get("replacing", AllBut(("Tags",)))
    return ResourceType(
        made, functools.partial(each, row["delete"]), updated, replacing, "tags" in row, snapshot
    )


def _rule(direction: str) -> ResourceType:
    """AWS::EC2::SecurityGroupIngress or SecurityGroupEgress: each resource is one rule."""
    peer = "Source" if direction == "ingress" else "Destination"
    names = (
        "GroupId",
        "IpProtocol",
        "FromPort",
        "ToPort",
        "CidrIp",
        "CidrIpv6",
        "Description",
        f"{peer}SecurityGroupId",
    )

    def create(logical_id: str, props: Properties, stack: str) -> Made:
        only(props, *names)
        group = props["GroupId"]
        permission = provisioners._ec2_sg_permissions([props])[0]
        permission = {key: value for key, value in permission.items() if value not in ([], None)}
        filters = [{"Name": "group-id", "Values": [group]}]
        before = client("ec2").describe_security_group_rules(Filters=filters)["SecurityGroupRules"]
        call = getattr(client("ec2"), f"authorize_security_group_{direction}")
        made = call(GroupId=group, IpPermissions=[permission])["SecurityGroupRules"][0][
            "SecurityGroupRuleId"
        ]
        if made in [rule["SecurityGroupRuleId"] for rule in before]:
            # MiniStack silently accepts a duplicate rule; AWS does not.
            raise ValueError(
                f"InvalidPermission.Duplicate: the specified rule already exists in {group}"
            )
        return made, {"Id": made}

    def delete(physical_id: str, props: Properties) -> None:
        call = getattr(client("ec2"), f"revoke_security_group_{direction}")
        call(GroupId=props["GroupId"], SecurityGroupRuleIds=[physical_id])

    return ResourceType(create, delete, tags=False)


PRIVATE_KEY = "/ec2/keypair/{}"
"""The parameter where CloudFormation keeps the private key of a key pair that it created."""


def _key_pair_create(logical_id: str, props: Properties, stack: str) -> Made:
    tags = [{"ResourceType": "key-pair", "Tags": props["Tags"]}] if props.get("Tags") else []
    given = {name: value for name, value in props.items() if name != "Tags"}
    pair = call("ec2", "create_key_pair", {**given, "TagSpecifications": tags})
    client("ssm").put_parameter(
        Name=PRIVATE_KEY.format(pair["KeyPairId"]), Value=pair["KeyMaterial"], Type="SecureString"
    )
    return props["KeyName"], {
        "KeyPairId": pair["KeyPairId"],
        "KeyFingerprint": pair["KeyFingerprint"],
    }


def _key_pair_delete(physical_id: str, props: Properties) -> None:
    [pair] = client("ec2").describe_key_pairs(KeyNames=[physical_id])["KeyPairs"]
    client("ec2").delete_key_pair(KeyName=physical_id)
    client("ssm").delete_parameter(Name=PRIVATE_KEY.format(pair["KeyPairId"]))


def _entry_policies(physical_id: str, old: Properties, new: Properties) -> None:
    """Updates the access policies of an access entry, which EKS keeps apart from the entry."""
    who = {"clusterName": new["ClusterName"], "principalArn": new["PrincipalArn"]}
    before, after = (
        {one["PolicyArn"]: one for one in props.get("AccessPolicies") or []} for props in (old, new)
    )
    for arn in before.keys() - after.keys():
        client("eks").disassociate_access_policy(**who, policyArn=arn)
    for arn, policy in after.items():
        if before.get(arn) != policy:
            call("eks", "associate_access_policy", {**who, **policy})


def _group_policies(name: str, old: Properties, new: Properties) -> None:
    before, after = (set(props.get("ManagedPolicyArns") or ()) for props in (old, new))
    for arn in sorted(after - before):
        client("iam").attach_group_policy(GroupName=name, PolicyArn=arn)
    for arn in sorted(before - after):
        client("iam").detach_group_policy(GroupName=name, PolicyArn=arn)


def _group_delete(delete: Call, name: str, props: Properties) -> None:
    _group_policies(name, props, {})
    delete(name, props)


TYPES = {
    "AWS::EC2::SecurityGroupIngress": _rule("ingress"),
    "AWS::EC2::SecurityGroupEgress": _rule("egress"),
    "AWS::EC2::KeyPair": ResourceType(_key_pair_create, _key_pair_delete, replacing=AllBut()),
}
