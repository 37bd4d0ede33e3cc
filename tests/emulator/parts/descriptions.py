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

KEPT = ("MixedInstancesPolicy", "CapacityRebalance")


def apply() -> None:
    """Put the models' writer in place of MiniStack's lists of members."""
    instances, fields = autoscaling._instances_xml, provisioners._asg_fields

    def template(data: Mapping[str, Any]) -> str:
        return _xml(model("ec2").shape_for("ResponseLaunchTemplateData"), data, item="item")

    def told(group: Mapping[str, Any]) -> str:
        more = {name: group[name] for name in KEPT if group.get(name)}
        return str(instances(group)) + _xml(model("autoscaling").shape_for("AutoScalingGroup"), more, item="member")

    def complete(props: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: props[name] for name in KEPT if name in props}
        return fields(props) | {"MixedInstancesPolicy": {}, "CapacityRebalance": False} | kept

    ec2._lt_data_xml, autoscaling._instances_xml, provisioners._asg_fields = template, told, complete


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
