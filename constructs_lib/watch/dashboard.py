"""A cluster's dashboard, the alarms that a person should get, and e-mails before the budget is
spent.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aws_cdk import Duration
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from constructs_lib.metrics import AUTO_SCALING, CONTAINER_INSIGHTS, EFS, metric
from constructs_lib.rules import USD, Violation, addresses, refuse_text
from constructs_lib.statements import statements
from constructs_lib.storage.key_policy import allow_use
from constructs_lib.storage.lustre import LustreFileSystem
from constructs_lib.validation import check, drop_token, drop_tokens, is_token, refuse

POLICY = Path(__file__).with_name("topic_policy.json")
TIB = 2**40


def _wrong_emails(emails: Sequence[str]) -> Iterator[Violation]:
    if isinstance(emails, str) or is_token(emails):
        return refuse_text("emails", emails, "a@example.com")
    return addresses("emails", drop_tokens(emails), len(emails))


Row = tuple[str, list[cloudwatch.IMetric]]
"""A widget's title and metrics."""


class ClusterDashboard(Construct):
    """A CloudWatch dashboard and its alarms.

    >>> dashboard = ClusterDashboard(
    ...     stack, "Watch", cluster_name="vision", emails=["ada@example.com"], min_nodes=2
    ... )

    Args:
        cluster_name: the cluster's name, as the metrics have it.
        emails: who hears of alarms: 1 to 10 addresses.
        dashboard_name: name; None: CloudFormation generates one.
        file_system_id: EFS's id; None: neither alarms nor rows for a file system.
        min_nodes: an alarm fires if there are fewer nodes, or if the agent stops counting them
            (create this after nodes and agent: the agent is silent until it counts). 0: no such
            alarm, because no nodes and no agent look alike.
        bursting: the file system's throughput mode is bursting: watch its credits.
        lustre: a file system of FSx for Lustre, which does not grow by itself: an alarm fires when
            less than a tenth of it is free.
        container_insights: the CloudWatch agent runs (settings logs.days, budget): watch the
            numbers of nodes and failed nodes.
        scaling_groups: Auto Scaling groups that report their machines, and how many each should
            have: fewer raise an alarm.
        encryption_key: KMS key of the topic; None: SNS's own encryption. An imported key's policy
            must let CloudWatch use the key, as EncryptionKey's does.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster_name: str,
        dashboard_name: str | None = None,
        file_system_id: str | None = None,
        emails: Sequence[str],
        min_nodes: int = 0,
        bursting: bool = False,
        lustre: LustreFileSystem | None = None,
        container_insights: bool = False,
        scaling_groups: Mapping[str, int] | None = None,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        refuse(self.node.path, _wrong_emails(emails) if emails else ())
        allow_use(encryption_key, "alarms")
        self.topic = sns.Topic(self, "Topic", master_key=encryption_key, enforce_ssl=True)
        (publishes,) = statements(
            POLICY, "alarms", topic=self.topic.topic_arn, account=self.topic.stack.account
        )
        self.topic.add_to_resource_policy(publishes)
        for email in emails:
            self.topic.add_subscription(subscriptions.EmailSubscription(email))
        self.alarms: list[cloudwatch.Alarm] = []
        rows: list[Row] = []
        if file_system_id is not None:
            rows += self._file_system(file_system_id, bursting)
        if lustre is not None:
            rows += self._lustre(lustre)
        if container_insights:
            dimensions = {"ClusterName": cluster_name}
            count, failures = "cluster_node_count", "cluster_failed_node_count"
            nodes = metric(CONTAINER_INSIGHTS, count, dimensions, statistic="Minimum")
            failed = metric(CONTAINER_INSIGHTS, failures, dimensions, statistic="Maximum")
            if min_nodes:
                meaning = (
                    f"fewer nodes than the {min_nodes} of cluster.yaml, or CloudWatch's agent "
                    "has stopped counting them"
                )
                self._alarm("FewNodes", nodes, min_nodes, meaning, below=True, silent=True)
            self._alarm("FailedNodes", failed, 0, "a node has failed")
            rows.append(("Nodes: all, failed", [nodes, failed]))
        for number, (group, desired) in enumerate((scaling_groups or {}).items()):
            dimensions = {"AutoScalingGroupName": group}
            in_service, desired_capacity = (
                metric(AUTO_SCALING, name, dimensions, statistic="Maximum")
                for name in ("GroupInServiceInstances", "GroupDesiredCapacity")
            )
            if desired:
                meaning = f"{group} runs fewer machines than the {desired} of cluster.yaml"
                self._alarm(f"Machines{number}", in_service, desired, meaning, below=True)
            rows.append((f"{group}: machines, wanted", [in_service, desired_capacity]))
        widgets = [
            cloudwatch.GraphWidget(title=title, left=metrics, width=12) for title, metrics in rows
        ]
        self.dashboard = cloudwatch.Dashboard(
            self, "Dashboard", dashboard_name=dashboard_name, widgets=[widgets]
        )
        self.node.default_child = self.dashboard.node.default_child
        self.dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Alarms", alarms=self.alarms, width=24)
        )

    def _file_system(self, file_system_id: str, bursting: bool) -> list[Row]:
        efs = {"FileSystemId": file_system_id}
        io_limit = metric(EFS, "PercentIOLimit", efs, statistic="Maximum")
        busy = "at its I/O limit for a quarter of an hour: jobs wait for the disk"
        self._alarm("FileSystemBusy", io_limit, 95, busy)
        throughput = cloudwatch.MathExpression(
            expression="bytes / PERIOD(bytes) / 1048576",
            label="MiB/s",
            using_metrics={"bytes": metric(EFS, "TotalIOBytes", efs, statistic="Sum")},
        )
        clients = metric(EFS, "ClientConnections", efs, statistic="Sum")
        rows: list[Row] = [
            ("File system: MiB/s", [throughput]),
            ("File system: % of its I/O limit", [io_limit]),
            ("File system: clients", [clients]),
        ]
        if bursting:
            credits = metric(EFS, "BurstCreditBalance", efs, statistic="Minimum")
            slow = "burst credits run out: soon it is slow"
            self._alarm("BurstCredits", credits, 0.2 * TIB, slow, below=True)
            rows.append(("File system: burst credits", [credits]))
        return rows

    def _lustre(self, files: LustreFileSystem) -> list[Row]:
        # The sum over all disks is right for one minute alone.
        free = files.metric_free_bytes(period=Duration.minutes(1))
        # A threshold cannot be computed from a size that only the deploy knows.
        if (gib := drop_token(files.storage_capacity_gib)) is not None:
            full = "less than a tenth of it is free: grow it, or remove old jobs' folders"
            self._alarm("FileSystemFull", free, gib * 2**30 / 10, full, below=True)
        moved = cloudwatch.MathExpression(
            expression="(read + written) / PERIOD(read) / 1048576",
            label="MiB/s",
            using_metrics={
                "read": files.metric("DataReadBytes", statistic="Sum"),
                "written": files.metric("DataWriteBytes", statistic="Sum"),
            },
        )
        left = cloudwatch.MathExpression(
            expression="free / 1073741824",
            label="GiB",
            using_metrics={"free": free},
            period=Duration.minutes(1),
        )
        return [("File system: MiB/s", [moved]), ("File system: GiB free", [left])]

    def _alarm(
        self,
        id: str,
        watched: cloudwatch.Metric,
        threshold: float,
        meaning: str,
        *,
        below: bool = False,
        silent: bool = False,
    ) -> None:
        """Adds an alarm. `below`: it fires below the threshold, not above it; `silent`: it also
        fires if there are no values.
        """
        operator, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        beyond = operator.LESS_THAN_THRESHOLD if below else operator.GREATER_THAN_THRESHOLD
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=watched,
            threshold=threshold,
            comparison_operator=beyond,
            evaluation_periods=3,
            treat_missing_data=missing.BREACHING if silent else missing.NOT_BREACHING,
            alarm_description=meaning,
        )
        notify = actions.SnsAction(self.topic)
        alarm.add_alarm_action(notify)
        alarm.add_ok_action(notify)
        self.alarms.append(alarm)


class MonthlyBudget(Construct):
    """An AWS budget that sends e-mails at 80 and 100 per cent spent, and when the forecast exceeds
    it.

    Example; bad input is refused in a sentence:

    >>> MonthlyBudget(stack, "Budget", usd=500, emails=["me"], tag=("project", "vision"))
    Traceback (most recent call last):
    ValueError: vision/Budget: emails is me: allowed is an address like a@example.com, ...

    Args:
        budget_name: name; None: CloudFormation generates one.
        usd: US dollars a month.
        emails: 1 to 10 addresses that get the alarms.
        tag: (key, value) of the resources that count. AWS counts by a tag only once it is activated
            as a cost allocation tag.

    Raises:
        ValueError: a sentence for each value that is refused.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        usd: int,
        emails: Sequence[str],
        tag: tuple[str, str],
        budget_name: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        violations = [*check(usd=(USD, usd)), *_wrong_emails(emails)]
        refuse(self.node.path, violations)
        key, value = tag
        kind = budgets.CfnBudget
        people = [
            kind.SubscriberProperty(subscription_type="EMAIL", address=email) for email in emails
        ]
        alarms = [
            kind.NotificationProperty(
                notification_type=of,
                comparison_operator="GREATER_THAN",
                threshold=share,
                threshold_type="PERCENTAGE",
            )
            for of, share in (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))
        ]
        self.resource = kind(
            self,
            "Resource",
            budget=kind.BudgetDataProperty(
                budget_name=budget_name,
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=kind.SpendProperty(amount=usd, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{key}${value}"]},
            ),
            notifications_with_subscribers=[
                kind.NotificationWithSubscribersProperty(notification=alarm, subscribers=people)
                for alarm in alarms
            ],
        )
