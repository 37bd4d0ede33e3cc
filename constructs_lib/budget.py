"""A monthly budget for what carries one tag, with mails before the money is gone."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_budgets as budgets
from constructs import Construct

_Notification = budgets.CfnBudget.NotificationWithSubscribersProperty


class MonthlyBudget(Construct):
    """An AWS budget: mails at 80 and 100 per cent spent, and when the forecast passes it.

    Args:
        budget_name: name; None: CloudFormation makes one.
        usd: US dollars a month.
        emails: who is told; 1 to 10 addresses.
        tag: (key, value) of what counts. AWS counts by a tag only once it is activated as a cost allocation tag.
    """

    def __init__(
        self, scope: Construct, id: str, *, usd: int, emails: Sequence[str], tag: tuple[str, str], budget_name: str | None = None
    ) -> None:
        super().__init__(scope, id)
        key, value = tag
        subscribers = [budgets.CfnBudget.SubscriberProperty(subscription_type="EMAIL", address=email) for email in emails]
        self.resource = budgets.CfnBudget(
            self,
            "Resource",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=budget_name,
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=usd, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{key}${value}"]},
            ),
            notifications_with_subscribers=[
                _Notification(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind, comparison_operator="GREATER_THAN", threshold=share, threshold_type="PERCENTAGE"
                    ),
                    subscribers=subscribers,
                )
                for kind, share in (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))
            ],
        )
