"""An Auto Scaling group of equal machines, whatever they join.

Promises: a terminated machine is replaced; a changed template replaces machines one at a time, each awaited where it signals.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnAutoScalingRollingUpdate, CfnCreationPolicy, CfnResourceSignal, CfnUpdatePolicy
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from constructs_lib.acknowledged import acknowledge

SIGNAL_TIMEOUT = "PT15M"
"""How long CloudFormation waits for a machine that says when it is ready."""


def scaling_group(
    scope: Construct,
    id: str,
    *,
    template: ec2.LaunchTemplate,
    instance_types: Sequence[str],
    spot: bool,
    sizes: tuple[int, int, int],
    subnet_ids: Sequence[str],
    signals: bool = False,
) -> autoscaling.CfnAutoScalingGroup:
    """The group.

    Args:
        template: what a machine is.
        instance_types: EC2 types, in order of preference.
        spot: spare capacity.
        sizes: fewest machines, machines at the start, most machines.
        subnet_ids: where.
        signals: each machine tells CloudFormation when it is ready; the deploy fails if one does not.
    """
    least, wanted, most = sizes
    group = autoscaling.CfnAutoScalingGroup(
        scope,
        id,
        min_size=str(least),
        desired_capacity=str(wanted),
        max_size=str(most),
        vpc_zone_identifier=list(subnet_ids),
        capacity_rebalance=spot,
        health_check_type="EC2",
        health_check_grace_period=300,
        mixed_instances_policy=autoscaling.CfnAutoScalingGroup.MixedInstancesPolicyProperty(
            instances_distribution=autoscaling.CfnAutoScalingGroup.InstancesDistributionProperty(
                on_demand_base_capacity=0,
                on_demand_percentage_above_base_capacity=0 if spot else 100,
                on_demand_allocation_strategy="prioritized",
                spot_allocation_strategy="price-capacity-optimized",
            ),
            launch_template=autoscaling.CfnAutoScalingGroup.LaunchTemplateProperty(
                launch_template_specification=autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
                    launch_template_id=template.launch_template_id, version=template.latest_version_number
                ),
                overrides=[
                    autoscaling.CfnAutoScalingGroup.LaunchTemplateOverridesProperty(instance_type=each) for each in instance_types
                ],
            ),
        ),
    )
    one_at_a_time(group, min_in_service=max(0, min(least, most - 1)), signals=signals, at_first=wanted)
    acknowledge(
        group,
        "disks and IMDSv2 are settled in the launch template, which the rules do not follow into a mixed-instances policy",
        "AwsSolutions-EC26",
        "NIST.800.53.R5-EC2IMDSv2Enabled",
    )
    acknowledge(group, "nodes that come and go are seen on the dashboard, not by mail", "AwsSolutions-AS3")
    return group


def counts_machines(group: autoscaling.CfnAutoScalingGroup) -> None:
    """`group` tells CloudWatch how many machines it wants and has, which costs nothing."""
    counted = autoscaling.CfnAutoScalingGroup.MetricsCollectionProperty(
        granularity="1Minute", metrics=["GroupDesiredCapacity", "GroupInServiceInstances"]
    )
    group.metrics_collection = [counted]


def one_at_a_time(
    group: autoscaling.CfnAutoScalingGroup,
    *,
    min_in_service: int,
    signals: bool,
    at_first: int,
    replacement_timeout: str = SIGNAL_TIMEOUT,
) -> None:
    """How CloudFormation replaces `group`'s machines, and whether it waits for the `at_first` first ones."""
    group.cfn_options.update_policy = CfnUpdatePolicy(
        auto_scaling_rolling_update=CfnAutoScalingRollingUpdate(
            max_batch_size=1,
            min_instances_in_service=min_in_service,
            pause_time=replacement_timeout if signals else "PT3M",
            suspend_processes=["AZRebalance", "AlarmNotification", "ScheduledActions"],
            wait_on_resource_signals=signals or None,
        )
    )
    if signals and at_first:
        group.cfn_options.creation_policy = CfnCreationPolicy(
            resource_signal=CfnResourceSignal(count=at_first, timeout=SIGNAL_TIMEOUT)
        )
