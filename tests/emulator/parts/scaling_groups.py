"""Auto Scaling groups that have machines; MiniStack's have none where a stack makes them.

Promises: a group has as many machines as it wants, launched from its template by RunInstances, whose parameters AWS's own
model checks; one that is terminated lets its volumes go and is replaced at once, one whose template has a newer version is
replaced; all end before their group does; DescribeInstanceAttribute tells their user data. Limits: records of EC2 without
disks, nothing boots, so nothing is waited for and no signal comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calls import client
from dependencies import _template, specification
from ministack.services import autoscaling, ec2
from resource_types import Call, after, around

Record = dict[str, Any]
GROUP = "AWS::AutoScaling::AutoScalingGroup"
terminate = ec2._ACTION_MAP["TerminateInstances"]


def apply() -> None:
    """Look after the groups whenever one changes, and whenever a machine ends."""
    after(GROUP, lambda name, old, new: _settle(autoscaling._asgs[name]))
    around(GROUP, delete=_delete)
    autoscaling._reconcile_instances = _settle

    def terminated(parameters: Any) -> Any:
        answer = terminate(parameters)
        _let_go()
        for group in autoscaling._asgs.values():
            _settle(group)
        return answer

    attribute = ec2._ACTION_MAP["DescribeInstanceAttribute"]

    def told(parameters: Any) -> Any:
        """MiniStack keeps a machine's user data to itself."""
        status, headers, body = attribute(parameters)
        text = ec2._instances.get(ec2._p(parameters, "InstanceId"), {}).get("UserData", "")
        return status, headers, body.replace(b"<userData/>", f"<userData><value>{text}</value></userData>".encode())

    ec2._ACTION_MAP |= {"TerminateInstances": terminated, "DescribeInstanceAttribute": told}


def _delete(delete: Call, name: str, props: Mapping[str, Any]) -> None:
    if name in autoscaling._asgs:
        autoscaling._asgs[name]["DesiredCapacity"] = 0
        _settle(autoscaling._asgs[name])
    delete(name, props)


def _alive(instance: str) -> bool:
    return instance in ec2._instances and ec2._instances[instance]["State"]["Name"] != "terminated"


def _end(*instances: str) -> None:
    if instances:
        status, _, body = terminate({f"InstanceId.{number}": one for number, one in enumerate(instances, 1)})
        if status != 200:
            raise RuntimeError(body.decode())
        _let_go()


def _let_go() -> None:
    """What a machine that is gone had: its volumes are free, its role is nobody's."""
    for volume in ec2._volumes.values():
        if any(not _alive(one["InstanceId"]) for one in volume["Attachments"]):
            volume |= {"Attachments": [], "State": "available"}
    for key, association in list(ec2._iam_instance_profile_associations.items()):
        if not _alive(association["InstanceId"]):
            del ec2._iam_instance_profile_associations[key]


def _settle(group: Record) -> None:
    """As many machines as the group wants, of its template's version, and no others."""
    template, wanted = specification(group), int(group["DesiredCapacity"])
    ours = [one["InstanceId"] for one in group["Instances"] if _alive(one["InstanceId"])]
    group["Instances"] = [one for one in group["Instances"] if one["InstanceId"] in ours and one["LaunchTemplate"] == template]
    del group["Instances"][wanted:]
    # The old ones first, as where there is one address and one volume; they are no longer the group's, which replaces none.
    ended = set(ours) - {one["InstanceId"] for one in group["Instances"]}
    _end(*ended)
    while len(group["Instances"]) < wanted:
        group["Instances"].append(_launch(group, template))


def _launch(group: Record, template: Mapping[str, Any]) -> Record:
    told = {name: value for name, value in _template(template).items() if name != "TagSpecifications"}
    overrides = ((group.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}).get("Overrides") or [{}]
    told |= {name: value for name, value in overrides[0].items() if name == "InstanceType"}
    interface = next(
        (one["NetworkInterfaceId"] for one in told.get("NetworkInterfaces") or [] if "NetworkInterfaceId" in one), None
    )
    place = ec2._network_interfaces[interface] if interface else {}
    subnets = group["VPCZoneIdentifier"].split(",")
    subnet = place.get("SubnetId") or subnets[len(group["Instances"]) % len(subnets)]
    if not interface:
        told["SubnetId"] = subnet
    told["TagSpecifications"] = [{"ResourceType": "instance", "Tags": _tags(group, template)}]
    [made] = client("ec2").run_instances(MinCount=1, MaxCount=1, **told)["Instances"]
    record = ec2._instances[made["InstanceId"]]
    for disk in record["BlockDeviceMappings"]:
        del ec2._volumes[disk["Ebs"]["VolumeId"]]
    zone = ec2._subnets[subnet]["AvailabilityZone"]
    record |= {"BlockDeviceMappings": [], "SubnetId": subnet, "VpcId": ec2._subnets[subnet]["VpcId"]}
    record["Placement"] = record["Placement"] | {"AvailabilityZone": zone}
    if interface:
        record["PrivateIpAddress"] = place["PrivateIpAddress"]
    return {
        "InstanceId": made["InstanceId"],
        "LifecycleState": "InService",
        "HealthStatus": "Healthy",
        "AvailabilityZone": zone,
        "ProtectedFromScaleIn": False,
        "LaunchTemplate": template,
    }


def _tags(group: Record, template: Mapping[str, Any]) -> list[dict[str, str]]:
    """The template's for machines, the group's that it hands on, and Auto Scaling's own."""
    told = {
        tag["Key"]: tag["Value"]
        for specification in _template(template).get("TagSpecifications") or []
        if specification.get("ResourceType") == "instance"
        for tag in specification["Tags"]
    }
    told |= {tag["Key"]: tag["Value"] for tag in group["Tags"] if tag["PropagateAtLaunch"]}
    told["aws:autoscaling:groupName"] = group["AutoScalingGroupName"]
    return [{"Key": key, "Value": value} for key, value in told.items()]
