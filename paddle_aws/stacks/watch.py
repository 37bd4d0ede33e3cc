"""The cluster's cost and health: budget, alarms, dashboard. Only if cluster.yaml has a `budget`."""

from constructs_lib.storage.file_system import MountableFileSystem
from constructs_lib.storage.lustre import LustreFileSystem
from constructs_lib.watch.dashboard import ClusterDashboard, MonthlyBudget
from paddle_aws.stacks.part import Platform, PlatformStack
from paddle_settings.errors import SettingError


class WatchStack(PlatformStack):
    """Budget, alarms and dashboard. Raises SettingError if the settings have no `budget`."""

    def __init__(self, platform: Platform) -> None:
        super().__init__(platform, "watch", "budget, alarms and dashboard")
        spec, budget, storage = self.spec, self.spec.budget, platform.storage
        if budget is None:
            raise SettingError("budget is empty: the watch stack sends its alarms to its `emails`")
        if budget.monthly_usd:
            MonthlyBudget(
                self,
                "Budget",
                budget_name=spec.name,
                usd=budget.monthly_usd,
                emails=budget.emails,
                tag=("cluster", spec.name),
            )
        machines = {}
        if spec.cluster.self_managed:
            # Plain names, not references: an export that an alarm imports would prevent the removal
            # of a group.
            machines = {spec.control_plane_group: 1}
            machines |= {
                spec.node_group_name(name): group.desired for name, group in spec.nodes.items()
            }
        files = storage.file_system
        is_efs = isinstance(files, MountableFileSystem)
        view = ClusterDashboard(
            self,
            "Watch",
            cluster_name=spec.cluster_name,
            dashboard_name=spec.name,
            file_system_id=files.volume_source["file_system_id"] if is_efs else None,
            emails=budget.emails,
            min_nodes=0 if spec.auto else sum(group.min for group in spec.nodes.values()),
            bursting=is_efs and spec.file_system.throughput == "bursting",
            lustre=files if isinstance(files, LustreFileSystem) else None,
            container_insights=spec.node_metrics,
            scaling_groups=machines,
            # An existing key may not let CloudWatch publish: the topic then has SNS's own
            # encryption.
            encryption_key=platform.access.node_volume_key,
        )
        self.output(DashboardName=view.dashboard.dashboard_name)
