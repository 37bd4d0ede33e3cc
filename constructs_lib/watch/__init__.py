"""CloudWatch: dashboard and alarms; budgets."""
