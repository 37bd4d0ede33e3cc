"""Budget, alarms and dashboard: on by one setting."""

import json
from typing import Any


def test_off_unless_asked_for(shipped: Any) -> None:
    assert "watch" not in shipped.templates


def test_the_budget_counts_what_carries_this_clusters_tag(variant: Any) -> None:
    (budget,) = variant("self-managed").resources("AWS::Budgets::Budget")
    assert budget["Budget"]["BudgetLimit"] == {"Amount": 500, "Unit": "USD"}
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": ["user:cluster$self"]}
    told = {
        (n["Notification"]["NotificationType"], n["Notification"]["Threshold"], n["Subscribers"][0]["Address"])
        for n in budget["NotificationsWithSubscribers"]
    }
    assert told == {
        ("ACTUAL", 80, "ops@example.com"),
        ("ACTUAL", 100, "ops@example.com"),
        ("FORECASTED", 100, "ops@example.com"),
    }


def test_alarms_reach_a_person(variant: Any) -> None:
    own = variant("self-managed")
    alarms = {a["MetricName"]: a for a in own.resources("AWS::CloudWatch::Alarm")}
    assert set(alarms) == {"PercentIOLimit", "BurstCreditBalance", "cluster_node_count", "cluster_failed_node_count"}
    assert alarms["cluster_node_count"]["Threshold"] == 1
    assert all(a["AlarmActions"] for a in alarms.values())
    (subscription,) = own.resources("AWS::SNS::Subscription")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")


def test_an_agent_that_stops_counting_is_an_alarm_and_a_fresh_deploy_is_none(otherwise: Any, built: Any) -> None:
    """Made after the nodes and the agent, unmade before them; where there may be no node, nobody can tell it from no agent."""
    treated = {a["MetricName"]: a["TreatMissingData"] for a in otherwise.resources("AWS::CloudWatch::Alarm")}
    assert treated.pop("cluster_node_count") == "breaching"
    assert set(treated.values()) == {"notBreaching"}
    after = {s.stack_name: {d.id for d in s.dependencies} for s in otherwise.assembly.stacks}["paddle-watch"]
    assert "paddle-nodes" in after
    empty = built(budget={"emails": ["a@b.de"]}, nodes={"workers": {"min": 0}})
    assert "cluster_node_count" not in {a["MetricName"] for a in empty.resources("AWS::CloudWatch::Alarm")}


def test_one_setting_is_enough(otherwise: Any) -> None:
    """A budget alone watches nodes too; what containers write stays where it is. Credits are watched where there are any."""
    alarms = {a["MetricName"] for a in otherwise.resources("AWS::CloudWatch::Alarm")}
    assert alarms == {"PercentIOLimit", "cluster_node_count", "cluster_failed_node_count"}
    [agent] = [a for a in otherwise.resources("AWS::EKS::Addon") if a["AddonName"] == "amazon-cloudwatch-observability"]
    assert json.loads(agent["ConfigurationValues"]) == {"containerLogs": {"enabled": False}}
    groups = {g.get("LogGroupName") for g in otherwise.resources("AWS::Logs::LogGroup", "nodes")}
    assert groups == {"/aws/containerinsights/paddle/performance"}


def test_the_topic_is_sealed(variant: Any) -> None:
    (topic,) = variant("self-managed").resources("AWS::SNS::Topic")
    assert "KmsMasterKeyId" in topic


def test_one_dashboard_shows_them(variant: Any) -> None:
    (dashboard,) = variant("self-managed").resources("AWS::CloudWatch::Dashboard")
    body = json.dumps(dashboard["DashboardBody"])
    for metric in ("TotalIOBytes", "BurstCreditBalance", "cluster_failed_node_count"):
        assert metric in body
