"""The CloudFormation types that the app needs and MiniStack lacks.

Promises: each type of resource_types.yaml, and each below but documents, is created, changed and
deleted through its service's own API (`calls.call`), so boto3 sees what was deployed. A property
that the API does not know fails the stack by name. A type that is neither here nor in MiniStack
fails the stack by name, because we only add to MiniStack's table. docs/emulator.md lists what is
not checked.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import jmespath
import yaml
from botocore.exceptions import ClientError
from calls import call, client, members
from ministack.core.responses import AccountRegionScopedDict, get_account_id
from ministack.services import eks, ssm
from ministack.services.cloudformation import provisioners

Properties = Mapping[str, Any]
PhysicalResource = tuple[str, dict[str, Any]]
"""A resource's physical id and its attributes for Fn::GetAtt."""


Handler = Callable[..., Any]
"""A `create`, `update` or `delete` in MiniStack's table."""


class AllBut(tuple[str, ...]):
    """Contains every property except these."""

    def __contains__(self, name: object) -> bool:
        return name not in tuple(self)


ALL_BUT_TAGS = AllBut(("Tags",))


def add(
    name: str,
    create: Callable[[str, Properties, str], PhysicalResource],
    delete: Callable[[str, Properties], object],
    *,
    replacing: Container[str] = ALL_BUT_TAGS,
    tags: bool = True,
    **more: Handler,
) -> None:
    """Adds a type to MiniStack's tables. Raises RuntimeError for one that MiniStack itself has by
    now: remove it from this folder.

    Args:
        replacing: properties whose change replaces the resource, by the resource reference.
        tags: whether it has tags.
        more: `update` in place (physical id, old, new, stack), which gets no change of a property
            in `replacing`; `snapshot` for `DeletionPolicy: Snapshot`, before the delete.
    """
    if name in provisioners._RESOURCE_HANDLERS:
        raise RuntimeError(f"MiniStack knows {name} itself: remove it from this folder")
    handlers = {"create": create, "delete": _tolerate_missing(delete), **more}
    provisioners._RESOURCE_HANDLERS[name] = handlers
    provisioners._REPLACING_PROPERTIES[name] = replacing
    if tags:
        provisioners._STACK_TAG_PROPERTY[name] = ("Tags", "list")


def wrap_handlers(kind: str, **wrappers: Handler) -> None:
    """Wraps a type's `create`, `update` or `delete`: the wrapper gets the handler and then the
    handler's arguments.
    """
    handlers = provisioners._RESOURCE_HANDLERS[kind]
    handlers |= {
        name: functools.partial(wrapper, handlers[name]) for name, wrapper in wrappers.items()
    }


def complete_after(
    kind: str, complete: Callable[[str, Properties, Properties], dict[str, Any] | None]
) -> None:
    """Calls `complete` with (physical id, old, new properties) after create and update, to add the
    properties that these drop; it may return more attributes.
    """

    def create_and_complete(
        create: Handler, logical_id: str, props: Properties, stack: str
    ) -> PhysicalResource:
        physical_id, attributes = create(logical_id, props, stack)
        try:
            return physical_id, attributes | (complete(physical_id, {}, props) or {})
        except Exception:
            provisioners._RESOURCE_HANDLERS[kind]["delete"](physical_id, props)
            raise

    def update_and_complete(
        update: Handler, physical_id: str, old: Properties, new: Properties, *rest: Any
    ) -> PhysicalResource:
        updated_id, attributes = update(physical_id, old, new, *rest)
        return updated_id, attributes | (
            complete(updated_id, old if updated_id == physical_id else {}, new) or {}
        )

    wrap_handlers(kind, create=create_and_complete, update=update_and_complete)


def apply() -> None:
    """Adds every type."""
    for name, row in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items():
        _DescribedType(row).add_as(name)
    _add_rules("AWS::EC2::SecurityGroupIngress", "ingress", "Source")
    _add_rules("AWS::EC2::SecurityGroupEgress", "egress", "Destination")
    add("AWS::EC2::KeyPair", _create_key_pair, _delete_key_pair, replacing=AllBut())
    replacing = ("Name", "DocumentType")
    add(
        "AWS::SSM::Document",
        _create_document,
        lambda name, props: _documents.pop(name, None),
        replacing=replacing,
        update=_update_document,
    )
    complete_after("AWS::EKS::AccessEntry", _update_entry_policies)
    complete_after("AWS::IAM::Group", _update_group_policies)
    wrap_handlers("AWS::IAM::Group", delete=_delete_group)


def _tolerate_missing(
    delete: Callable[[str, Properties], object],
) -> Callable[[str, Properties], None]:
    """Wraps `delete`: a resource that is already gone counts as deleted, as in CloudFormation."""

    @functools.wraps(delete)
    def delete_if_there(physical_id: str, props: Properties) -> None:
        try:
            delete(physical_id, props)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if not (
                "NotFound" in code or code in ("NoSuchEntity", "InvalidPlacementGroup.Unknown")
            ):
                raise

    return delete_if_there


def _refuse_other_properties(props: Properties, *names: str) -> None:
    """Raises ValueError for a property that is neither in `names` nor the tags."""
    if unknown := sorted(props.keys() - {*names, "Tags"}):
        raise ValueError(f"Encountered unsupported property {', '.join(unknown)}")


def _select(paths: Mapping[str, str] | None, properties: Properties) -> dict[str, Any]:
    """Returns the value at each path; a path that leads nowhere is left out."""
    values = {name: jmespath.search(path, properties) for name, path in (paths or {}).items()}
    return {name: value for name, value in values.items() if value is not None}


class _DescribedType:
    """A type as a row of resource_types.yaml describes it: which calls of its service create,
    change and delete a resource, and with which parameters.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row, self._service = row, row["service"]
        self._omitted = {*row.get("omit", ()), "Tags"}
        self._records = AccountRegionScopedDict()
        """Attributes, and the identifier that carries the tags, by physical id."""

    def add_as(self, name: str) -> None:
        """Adds the type under its name."""
        row, more = self._row, {"update": self.update}
        if "snapshot" in row:
            more["snapshot"] = functools.partial(self.run, row["snapshot"])
        delete = functools.partial(self.run, row["delete"])
        replacing = row.get("replacing", ALL_BUT_TAGS)
        add(name, self.create, delete, replacing=replacing, tags="tags" in row, **more)

    def create(self, logical_id: str, props: Properties, stack: str) -> PhysicalResource:
        """Creates a resource, and keeps the attributes that templates ask for."""
        row, operation = self._row, self._row["create"]
        generated_name = str(
            provisioners._physical_name(stack, logical_id, max_len=row.get("max_length", 255))
        )
        resource = {**props, "generated_name": generated_name, "account": get_account_id()}
        tags = {"Tags": props.get("Tags") or [], "tags": provisioners._tag_map(props.get("Tags"))}
        accepted_tags = {
            name: value for name, value in tags.items() if name in members(self._service, operation)
        }
        request = {**self._parameters(props, row.get("with"), resource), **accepted_tags}
        resource |= call(self._service, operation, request)
        physical_id: str = jmespath.search(row["id"], resource)
        attributes = _select(row.get("attributes"), resource)
        tagged_id = jmespath.search(row.get("tags", "id"), {**resource, "id": physical_id})
        self._records[physical_id] = (attributes, tagged_id)
        if not accepted_tags:
            self._retag(physical_id, {}, props)
        return physical_id, attributes

    def update(
        self, physical_id: str, old: Properties, new: Properties, *rest: Any
    ) -> PhysicalResource:
        """Changes a resource in place."""
        for operation, paths in self._row.get("update", {}).items():
            names = {name.lower() for name in members(self._service, operation)}
            request = self._parameters(new, paths, self._describe(physical_id, new))
            arguments = {name: value for name, value in request.items() if name.lower() in names}
            call(self._service, operation, arguments)
        self._retag(physical_id, old, new)
        return physical_id, self._records[physical_id][0]

    def run(self, calls: Mapping[str, Any], physical_id: str, props: Properties) -> None:
        """Makes the calls that delete a resource, or take its snapshot."""
        for operation, paths in calls.items():
            call(self._service, operation, _select(paths, self._describe(physical_id, props)))

    def _describe(self, physical_id: str, props: Properties) -> dict[str, Any]:
        attributes, itself = self._records.get(physical_id, [{}])[0], {"id": physical_id}
        return {**props, **attributes, **itself, "account": get_account_id()}

    def _parameters(
        self, props: Properties, paths: Mapping[str, str] | None, resource: Properties
    ) -> dict[str, Any]:
        return {
            **{name: value for name, value in props.items() if name not in self._omitted},
            **_select(paths, resource),
        }

    def _retag(self, physical_id: str, old: Properties, new: Properties) -> None:
        tagged_id = self._records[physical_id][1]
        if self._service == "ec2" and "tags" in self._row:
            provisioners._ec2_apply_tags(tagged_id, dict(new), dict(old))
        elif self._service == "eks":
            old_tags, new_tags = (provisioners._tag_map(props.get("Tags")) for props in (old, new))
            tags = eks._tags.get(tagged_id, {}).items()
            kept = {key: value for key, value in tags if key not in old_tags}
            eks._tags[tagged_id] = kept | new_tags


def _add_rules(kind: str, direction: str, peer: str) -> None:
    """Adds a type whose resource is one rule of a security group."""
    names = ["GroupId", "IpProtocol", "FromPort", "ToPort", "CidrIp", "CidrIpv6", "Description"]

    def create(logical_id: str, props: Properties, stack: str) -> PhysicalResource:
        _refuse_other_properties(props, *names, f"{peer}SecurityGroupId")
        group = props["GroupId"]
        permission = provisioners._ec2_sg_permissions([props])[0]
        permission = {key: value for key, value in permission.items() if value not in ([], None)}
        filters = [{"Name": "group-id", "Values": [group]}]
        existing = client("ec2").describe_security_group_rules(Filters=filters)
        authorize = getattr(client("ec2"), f"authorize_security_group_{direction}")
        answer = authorize(GroupId=group, IpPermissions=[permission])
        rule_id = answer["SecurityGroupRules"][0]["SecurityGroupRuleId"]
        if rule_id in [rule["SecurityGroupRuleId"] for rule in existing["SecurityGroupRules"]]:
            # MiniStack silently accepts a duplicate rule; AWS does not.
            raise ValueError(
                f"InvalidPermission.Duplicate: the specified rule already exists in {group}"
            )
        return rule_id, {"Id": rule_id}

    def delete(physical_id: str, props: Properties) -> None:
        revoke = getattr(client("ec2"), f"revoke_security_group_{direction}")
        revoke(GroupId=props["GroupId"], SecurityGroupRuleIds=[physical_id])

    add(kind, create, delete, tags=False)


PRIVATE_KEY = "/ec2/keypair/{}"
"""The parameter where CloudFormation keeps the private key of a key pair that it created."""


def _create_key_pair(logical_id: str, props: Properties, stack: str) -> PhysicalResource:
    tags = [{"ResourceType": "key-pair", "Tags": props["Tags"]}] if props.get("Tags") else []
    properties = {name: value for name, value in props.items() if name != "Tags"}
    pair = call("ec2", "create_key_pair", {**properties, "TagSpecifications": tags})
    client("ssm").put_parameter(
        Name=PRIVATE_KEY.format(pair["KeyPairId"]), Value=pair["KeyMaterial"], Type="SecureString"
    )
    return props["KeyName"], {name: pair[name] for name in ("KeyPairId", "KeyFingerprint")}


def _delete_key_pair(physical_id: str, props: Properties) -> None:
    [pair] = client("ec2").describe_key_pairs(KeyNames=[physical_id])["KeyPairs"]
    client("ec2").delete_key_pair(KeyName=physical_id)
    client("ssm").delete_parameter(Name=PRIVATE_KEY.format(pair["KeyPairId"]))


def _update_entry_policies(physical_id: str, old: Properties, new: Properties) -> None:
    """Updates the access policies of an access entry, which EKS keeps apart from the entry."""
    entry = {"clusterName": new["ClusterName"], "principalArn": new["PrincipalArn"]}
    before, after = (
        {policy["PolicyArn"]: policy for policy in props.get("AccessPolicies") or []}
        for props in (old, new)
    )
    for arn in before.keys() - after.keys():
        client("eks").disassociate_access_policy(**entry, policyArn=arn)
    for arn, policy in after.items():
        if before.get(arn) != policy:
            call("eks", "associate_access_policy", {**entry, **policy})


def _update_group_policies(name: str, old: Properties, new: Properties) -> None:
    before, after = (set(props.get("ManagedPolicyArns") or ()) for props in (old, new))
    for arn in sorted(after - before):
        client("iam").attach_group_policy(GroupName=name, PolicyArn=arn)
    for arn in sorted(before - after):
        client("iam").detach_group_policy(GroupName=name, PolicyArn=arn)


def _delete_group(delete: Handler, name: str, props: Properties) -> None:
    _update_group_policies(name, props, {})
    delete(name, props)


_documents = ssm._documents = AccountRegionScopedDict()
"""Systems Manager's documents, a service that MiniStack lacks. Limits: botocore does not check a
document, no call returns one, only the last version is kept, and no session starts.
"""


def _create_document(logical_id: str, props: Properties, stack: str) -> PhysicalResource:
    _refuse_other_properties(props, "Name", "Content", "DocumentType", "UpdateMethod")
    if props["Name"] in _documents:
        raise ValueError(f"Document with name {props['Name']} already exists")
    return _update_document(props["Name"], {}, props)


def _update_document(name: str, old: Properties, new: Properties, *rest: Any) -> PhysicalResource:
    content = {"Content": json.dumps(new["Content"]), "DocumentType": new["DocumentType"]}
    _documents[name] = {"Name": name, "Status": "Active", **content}
    return name, {}
