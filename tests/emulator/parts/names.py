"""Names, Refs and secrets' values as AWS has them, and a zone that is not empty stays: a rehearsal asks for none of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from calls import call, client
from ministack.services import iam, route53, secretsmanager
from ministack.services.cloudformation import provisioners
from resource_types import Any, Call, Made, Properties, around


def apply() -> None:
    _called("AWS::EKS::Nodegroup", lambda name, props: f"{props['ClusterName']}/{name}", lambda ref: ref.rpartition("/")[2])
    _called("AWS::IAM::InstanceProfile", lambda arn, props: arn.rpartition("/")[2], _profile_arn)
    for kind, named, form in (("AWS::Logs::LogGroup", "LogGroupName", "{}"), ("AWS::SSM::Parameter", "Name", "CFN-{}")):
        around(kind, create=partial(_named_on_creation, named, form), update=partial(_named_on_update, named))
    around("AWS::SecretsManager::Secret", create=_secret_create)
    _called("AWS::SecretsManager::Secret", lambda name, props: str(secretsmanager._secrets[name]["ARN"]), _secret_name)
    around("AWS::Route53::HostedZone", delete=_zone_delete)


def _called(kind: str, ref: Callable[[str, Properties], str], back: Callable[[str], str]) -> None:
    """On AWS this type's Ref is another than MiniStack's: `ref` (MiniStack's, properties) gives it, `back` leads back."""

    def created(create: Call, logical_id: str, props: Properties, stack: str) -> Made:
        made, attributes = create(logical_id, props, stack)
        return ref(made, props), attributes

    def updated(update: Call, physical_id: str, old: Properties, new: Properties, *rest: Any) -> Made:
        made, attributes = update(back(physical_id), old, new, *rest)
        return ref(made, new), attributes

    def deleted(delete: Call, physical_id: str, props: Properties) -> None:
        delete(back(physical_id), props)

    around(kind, create=created, update=updated, delete=deleted)


def _profile_arn(name: str) -> str:
    return str(iam._instance_profiles[name]["Arn"]) if name in iam._instance_profiles else name


def _secret_name(arn: str) -> str:
    return next((name for name, secret in secretsmanager._secrets.items() if secret["ARN"] == arn), arn)


def _named_on_creation(named: str, form: str, create: Call, logical_id: str, props: Properties, stack: str) -> Made:
    """The name that AWS makes up, which policies by name rely on: MiniStack puts the stack's name elsewhere."""
    name = props.get(named) or form.format(provisioners._physical_name(stack, logical_id, max_len=255))
    return create(logical_id, {**props, named: name}, stack)


def _named_on_update(named: str, update: Call, physical_id: str, old: Properties, new: Properties, *rest: Any) -> Made:
    before = old.get(named) or physical_id
    name = new.get(named) or (before if named in old else physical_id)
    return update(physical_id, {**old, named: before}, {**new, named: name}, *rest)


def _secret_create(create: Call, logical_id: str, props: Properties, stack: str) -> Made:
    """A secret without a value has none, MiniStack's an empty one; and MiniStack leaves out how a value is to be generated."""
    if generated := props.get("GenerateSecretString"):
        told = {key: value for key, value in generated.items() if key not in ("SecretStringTemplate", "GenerateStringKey")}
        props = {**props, "SecretString": call("secretsmanager", "get_random_password", told)["RandomPassword"]}
    made: Made = create(logical_id, props, stack)
    if "SecretString" not in props:
        secretsmanager._secrets[made[0]]["Versions"].clear()
    return made


def _zone_delete(delete: Call, physical_id: str, props: Properties) -> None:
    """AWS refuses a zone that still has records of its own."""
    if physical_id in route53._zones:
        client("route53").delete_hosted_zone(Id=physical_id)
