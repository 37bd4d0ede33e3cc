"""Where MiniStack's own CloudFormation types behave otherwise than AWS, in ways that a deploy or a destroy would hide.

Promises: each repair wraps MiniStack's handler and nothing else; what it adds is visible to boto3. docs/emulator.md
has what is still missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from calls import client
from ministack.core.responses import get_account_id, get_region, new_uuid
from ministack.services import ec2, ecr, eks, iam, kms, route53, s3, secretsmanager
from ministack.services.cloudformation import provisioners

Properties = Mapping[str, Any]
Made = tuple[str, dict[str, Any]]


def apply() -> None:
    """Put every repair in place."""
    _wrap("AWS::S3::Bucket", after=_bucket_configured)
    _handlers("AWS::S3::Bucket")["delete"] = _bucket_delete
    provisioners._STACK_TAG_PROPERTY["AWS::S3::Bucket"] = ("Tags", "list")
    s3._resolve_sse_write_headers = _with_default_key(s3._resolve_sse_write_headers)
    _wrap("AWS::EC2::VPC", after=_vpc_attributes)
    _wrap("AWS::EKS::Cluster", before=_cluster_checked, after=_cluster_completed)
    _handlers("AWS::EKS::Cluster")["delete"] = _cluster_delete
    _wrap("AWS::EKS::Nodegroup", before=_nodegroup_checked, after=_nodegroup_completed)
    _called("AWS::EKS::Nodegroup", lambda name, props: f"{props['ClusterName']}/{name}", lambda ref: ref.rpartition("/")[2])
    _called("AWS::IAM::InstanceProfile", lambda arn, props: arn.rpartition("/")[2], _profile_arn)
    _made_up_name("AWS::Logs::LogGroup", "LogGroupName", "{}")
    _made_up_name("AWS::SSM::Parameter", "Name", "CFN-{}")
    _refuse_a_name_that_is_taken("AWS::ECR::Repository", "RepositoryName", lambda name: name in ecr._repositories)
    _refuse_a_name_that_is_taken("AWS::KMS::Alias", "AliasName", lambda name: kms._alias_arn(name) in kms._aliases)
    _secret_given_its_value()
    _called("AWS::SecretsManager::Secret", lambda name, props: str(secretsmanager._secrets[name]["ARN"]), _secret_name)
    zone = _handlers("AWS::Route53::HostedZone")
    zone["create"], zone["delete"] = _zone_create, _zone_delete


def _handlers(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = provisioners._RESOURCE_HANDLERS[kind]
    return found


def _wrap(
    kind: str,
    before: Callable[[Properties], None] = lambda props: None,
    after: Callable[[str, Properties, Properties], dict[str, Any] | None] = lambda physical_id, old, new: None,
) -> None:
    """`before` checks what AWS would refuse; `after` (physical id, old, new) adds what MiniStack dropped, attributes included."""
    handlers = _handlers(kind)
    create, update = handlers["create"], handlers["update"]

    def created(logical_id: str, props: Properties, stack: str) -> Made:
        before(props)
        physical_id, attributes = create(logical_id, props, stack)
        return physical_id, attributes | (after(physical_id, {}, props) or {})

    def updated(physical_id: str, old: Properties, new: Properties, *rest: Any) -> Made:
        before(new)
        made, attributes = update(physical_id, old, new, *rest)
        return made, attributes | (after(made, old if made == physical_id else {}, new) or {})

    handlers["create"], handlers["update"] = created, updated


# S3: MiniStack keeps versioning, CORS, the public access block, notifications and websites only.


def _bucket_configured(name: str, old: Properties, new: Properties) -> None:
    api = client("s3")
    if rules := (new.get("BucketEncryption") or {}).get("ServerSideEncryptionConfiguration"):
        told = [
            {
                "ApplyServerSideEncryptionByDefault": rule["ServerSideEncryptionByDefault"],
                "BucketKeyEnabled": provisioners._cfn_bool(rule.get("BucketKeyEnabled", False)),
            }
            for rule in rules
        ]
        api.put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration={"Rules": told})
    if rules := (new.get("LifecycleConfiguration") or {}).get("Rules"):
        api.put_bucket_lifecycle_configuration(
            Bucket=name, LifecycleConfiguration={"Rules": [_lifecycle(rule) for rule in rules]}
        )
    elif old.get("LifecycleConfiguration"):
        api.delete_bucket_lifecycle(Bucket=name)
    if logging := new.get("LoggingConfiguration"):
        target = {"TargetBucket": logging.get("DestinationBucketName", name), "TargetPrefix": logging.get("LogFilePrefix", "")}
        api.put_bucket_logging(Bucket=name, BucketLoggingStatus={"LoggingEnabled": target})
    if rules := (new.get("OwnershipControls") or {}).get("Rules"):
        api.put_bucket_ownership_controls(Bucket=name, OwnershipControls={"Rules": rules})
    if tags := new.get("Tags"):
        s3._bucket_tags[name] = {tag["Key"]: tag["Value"] for tag in tags}


KEY_HEADER = "x-amz-server-side-encryption-aws-kms-key-id"


def _with_default_key(resolve: Callable[[dict[str, str], str], Any]) -> Callable[[dict[str, str], str], Any]:
    """A write with aws:kms and no key takes the bucket's key or the account's aws/s3; MiniStack refuses it."""

    def resolved(headers: dict[str, str], bucket: str) -> Any:
        if headers.get("x-amz-server-side-encryption") == "aws:kms" and not headers.get(KEY_HEADER):
            default = s3._bucket_default_sse_headers(bucket).get(KEY_HEADER)
            headers = headers | {KEY_HEADER: default or f"arn:aws:kms:{get_region()}:{get_account_id()}:alias/aws/s3"}
        return resolve(headers, bucket)

    return resolved


def _lifecycle(rule: Properties) -> dict[str, Any]:
    """A template's rule in the API's members."""
    told: dict[str, Any] = {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "ExpirationInDays" in rule:
        told["Expiration"] = {"Days": int(rule["ExpirationInDays"])}
    elif provisioners._cfn_bool(rule.get("ExpiredObjectDeleteMarker", False)):
        told["Expiration"] = {"ExpiredObjectDeleteMarker": True}
    if "NoncurrentVersionExpiration" in rule:
        told["NoncurrentVersionExpiration"] = {key: int(value) for key, value in rule["NoncurrentVersionExpiration"].items()}
    if "AbortIncompleteMultipartUpload" in rule:
        days = int(rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"])
        told["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": days}
    return told


def _bucket_delete(physical_id: str, props: Properties) -> None:
    """MiniStack's stack delete throws a full bucket away; AWS refuses one with objects or old versions."""
    if physical_id in s3._buckets:
        status, _, body = s3._delete_bucket(physical_id)
        if status >= 400:
            code = body.decode().partition("<Code>")[2].partition("</Code>")[0]
            raise ValueError(
                f"The bucket {physical_id} you tried to delete is not empty. (Service: S3, Status Code: {status}, {code})"
            )


# EC2.


def _vpc_attributes(physical_id: str, old: Properties, new: Properties) -> dict[str, Any]:
    """Fn::GetAtt CidrBlock: MiniStack has the VPC's defaults only."""
    return {"CidrBlock": ec2._vpcs[physical_id]["CidrBlock"]}


# EKS.


def _cluster_checked(props: Properties) -> None:
    zones = {ec2._subnets[subnet]["AvailabilityZone"] for subnet in _subnets(props) if subnet in ec2._subnets}
    if len(zones) < 2:
        raise ValueError(
            "Subnets specified must be in at least two different AZs (Service: Eks, Status Code: 400, InvalidParameterException)"
        )


def _subnets(props: Properties) -> list[str]:
    return list((props.get("ResourcesVpcConfig") or {}).get("SubnetIds") or [])


def _cluster_completed(name: str, old: Properties, new: Properties) -> dict[str, Any]:
    """The cluster's security group exists in EC2, it knows its VPC, and keeps what MiniStack drops."""
    cluster = eks._clusters[name]
    network = cluster["resourcesVpcConfig"]
    if not old:
        vpc = ec2._subnets[_subnets(new)[0]]["VpcId"]
        network["vpcId"] = vpc
        made = client("ec2").create_security_group(
            GroupName=f"eks-cluster-sg-{name}-{new_uuid()[:8]}",
            Description="EKS created security group applied to ENI that is attached to EKS Control Plane master nodes",
            VpcId=vpc,
        )["GroupId"]
        itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": made}]}
        client("ec2").authorize_security_group_ingress(GroupId=made, IpPermissions=[itself])
        network["clusterSecurityGroupId"] = made
    for kept in ("EncryptionConfig", "ComputeConfig", "StorageConfig"):
        if kept in new:
            cluster[kept[0].lower() + kept[1:]] = provisioners._pascal_to_camel(new[kept])
    return dict(provisioners._eks_cluster_attrs(cluster))


def _cluster_delete(physical_id: str, props: Properties) -> None:
    """AWS refuses a cluster that still has node groups; its security group and add-ons go with it."""
    cluster = eks._clusters.get(physical_id)
    if cluster is None:
        return
    if left := [key for key in eks._nodegroups if key.startswith(f"{physical_id}/")]:
        raise ValueError(
            f"Cluster has nodegroups attached: {', '.join(left)} (Service: Eks, Status Code: 409, ResourceInUseException)"
        )
    for key in [key for key in eks._addons if key.startswith(f"{physical_id}/")]:
        addon = eks._addons.pop(key)
        eks._tags.pop(addon["addonArn"], None)
    eks._delete_cluster(physical_id)
    group = cluster["resourcesVpcConfig"].get("clusterSecurityGroupId")
    if group in ec2._security_groups:
        client("ec2").delete_security_group(GroupId=group)


def _nodegroup_checked(props: Properties) -> None:
    scaling = {key: int(value) for key, value in (props.get("ScalingConfig") or {}).items()}
    order = [scaling[key] for key in ("MinSize", "DesiredSize", "MaxSize") if key in scaling]
    if any(first > second for first, second in itertools.pairwise(order)):
        raise ValueError(f"Minimum, desired and maximum capacity are out of order: {scaling} (Service: Eks, Status Code: 400)")


def _nodegroup_completed(name: str, old: Properties, new: Properties) -> dict[str, Any]:
    """What MiniStack drops of a node group."""
    group = eks._nodegroups[f"{new['ClusterName']}/{name}"]
    for kept in ("CapacityType", "LaunchTemplate", "NodeRepairConfig"):
        if kept in new:
            group[kept[0].lower() + kept[1:]] = provisioners._pascal_to_camel(new[kept])
    return {"Id": f"{new['ClusterName']}/{name}"}


# Names.


def _called(kind: str, ref: Callable[[str, Properties], str], back: Callable[[str], str]) -> None:
    """On AWS this type's Ref is another than MiniStack's: `ref` (MiniStack's, properties) gives it, `back` leads back."""
    handlers = _handlers(kind)
    create, update, delete = handlers["create"], handlers["update"], handlers["delete"]

    def created(logical_id: str, props: Properties, stack: str) -> Made:
        made, attributes = create(logical_id, props, stack)
        return ref(made, props), attributes

    def updated(physical_id: str, old: Properties, new: Properties, *rest: Any) -> Made:
        made, attributes = update(back(physical_id), old, new, *rest)
        return ref(made, new), attributes

    handlers |= {"create": created, "update": updated, "delete": lambda physical_id, props: delete(back(physical_id), props)}


def _profile_arn(name: str) -> str:
    return str(iam._instance_profiles[name]["Arn"]) if name in iam._instance_profiles else name


def _secret_name(arn: str) -> str:
    return next((name for name, secret in secretsmanager._secrets.items() if secret["ARN"] == arn), arn)


def _secret_given_its_value() -> None:
    """A secret without a value has none, MiniStack's an empty one; and MiniStack leaves out how a value is to be generated."""
    handlers = _handlers("AWS::SecretsManager::Secret")
    create = handlers["create"]

    def created(logical_id: str, props: Properties, stack: str) -> Made:
        if props.get("Name") in secretsmanager._secrets:
            raise ValueError(f"The operation failed because the secret {props['Name']} already exists. (ResourceExistsException)")
        generated = props.get("GenerateSecretString")
        value = client("secretsmanager").get_random_password(**_generation(generated))["RandomPassword"] if generated else ""
        made: Made = create(logical_id, {**props, "SecretString": value} if generated else props, stack)
        if not (generated or "SecretString" in props):
            secretsmanager._secrets[made[0]]["Versions"].clear()
        return made

    handlers["create"] = created


def _generation(given: Properties) -> dict[str, Any]:
    """GenerateSecretString as GetRandomPassword takes it."""
    told = {key: value for key, value in given.items() if key not in ("SecretStringTemplate", "GenerateStringKey")}
    return {
        key: int(value) if key == "PasswordLength" else value if key == "ExcludeCharacters" else provisioners._cfn_bool(value)
        for key, value in told.items()
    }


def _made_up_name(kind: str, named: str, form: str) -> None:
    """The name that AWS makes up, which policies by name rely on: MiniStack puts the stack's name elsewhere."""
    handlers = _handlers(kind)
    create, update = handlers["create"], handlers["update"]

    def created(logical_id: str, props: Properties, stack: str) -> Made:
        name = props.get(named) or form.format(provisioners._physical_name(stack, logical_id, max_len=255))
        made: Made = create(logical_id, {**props, named: name}, stack)
        return made

    def updated(physical_id: str, old: Properties, new: Properties, *rest: Any) -> Made:
        before = old.get(named) or physical_id
        after = new.get(named) or (before if named in old else physical_id)
        made: Made = update(physical_id, {**old, named: before}, {**new, named: after}, *rest)
        return made

    handlers |= {"create": created, "update": updated}


def _refuse_a_name_that_is_taken(kind: str, named: str, taken: Callable[[str], bool]) -> None:
    """MiniStack's create takes over what somebody else has under that name."""
    handlers = _handlers(kind)
    create = handlers["create"]

    def created(logical_id: str, props: Properties, stack: str) -> Made:
        if taken(props.get(named, "")):
            raise ValueError(f"Resource of type '{kind}' with identifier '{props[named]}' already exists. (AlreadyExists)")
        made: Made = create(logical_id, props, stack)
        return made

    handlers["create"] = created


# Route 53: MiniStack makes every zone of a stack a public one.


def _zone_create(logical_id: str, props: Properties, stack: str) -> Made:
    vpcs = [{"VPCRegion": vpc.get("VPCRegion", get_region()), "VPCId": vpc["VPCId"]} for vpc in props.get("VPCs") or []]
    api = client("route53")
    made = api.create_hosted_zone(
        Name=props["Name"],
        CallerReference=new_uuid(),
        HostedZoneConfig={"Comment": (props.get("HostedZoneConfig") or {}).get("Comment", ""), "PrivateZone": bool(vpcs)},
        **({"VPC": vpcs[0]} if vpcs else {}),
    )
    zone = made["HostedZone"]["Id"].rpartition("/")[2]
    for vpc in vpcs[1:]:
        api.associate_vpc_with_hosted_zone(HostedZoneId=zone, VPC=vpc)
    if tags := props.get("HostedZoneTags"):
        api.change_tags_for_resource(ResourceType="hostedzone", ResourceId=zone, AddTags=tags)
    return zone, {"Id": zone, "NameServers": made.get("DelegationSet", {}).get("NameServers", [])}


def _zone_delete(physical_id: str, props: Properties) -> None:
    """AWS refuses a zone that still has records of its own."""
    if physical_id in route53._zones:
        client("route53").delete_hosted_zone(Id=physical_id)
