"""Launch templates and Auto Scaling groups as AWS describes them; MiniStack leaves members out.

Promises: whatever a template said of them is in DescribeLaunchTemplateVersions and DescribeAutoScalingGroups, written by
AWS's own models of the answers (fabric adapters, placement, the key of a volume, the mix of spot and on-demand).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from calls import model
from ministack.services import autoscaling, ec2
from ministack.services.cloudformation import provisioners


def apply() -> None:
    """Put the models' writer in place of MiniStack's lists of members."""
    ec2._lt_data_xml = launch_template_data
    instances = autoscaling._instances_xml
    autoscaling._instances_xml = lambda group: instances(group) + _mixed_instances(group)
    fields = provisioners._asg_fields

    def complete(props: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: props[name] for name in ("MixedInstancesPolicy", "CapacityRebalance") if name in props}
        return fields(props) | {"MixedInstancesPolicy": {}, "CapacityRebalance": False} | kept

    provisioners._asg_fields = complete


def launch_template_data(data: Mapping[str, Any]) -> str:
    """The inner XML of `launchTemplateData`."""
    return _xml(model("ec2").shape_for("ResponseLaunchTemplateData"), data, item="item")


def _mixed_instances(group: Mapping[str, Any]) -> str:
    told = {name: group[name] for name in ("MixedInstancesPolicy", "CapacityRebalance") if group.get(name)}
    return _xml(model("autoscaling").shape_for("AutoScalingGroup"), told, item="member")


def _xml(shape: Any, value: Any, *, item: str) -> str:
    """`value` in the members of `shape`; a member that AWS's answer does not have is left out."""
    if shape.type_name == "structure":
        inner = ""
        for name, member in shape.members.items():
            if name in value:
                tag = member.serialization.get("name", name)
                inner += f"<{tag}>{_xml(member, value[name], item=item)}</{tag}>"
        return inner
    if shape.type_name == "list":
        return "".join(f"<{item}>{_xml(shape.member, one, item=item)}</{item}>" for one in value)
    if shape.type_name == "boolean":
        return str(provisioners._cfn_bool(value)).lower()
    return escape(str(value))
