"""Sets a stack's policy when a deploy of it has ended. Runs in AWS Lambda, inline: 4,096 characters
at most.
"""

import json
from typing import Any

# botocore alone: an emulator's Python may have no boto3.
import botocore.session

POLICY: dict[str, Any] = {}
"""What stack_protection.py appends: whoever may invoke the function has no say in it."""


def handler(event: dict[str, Any], context: Any) -> None:
    """Gets the stack from the rule. An error is logged, and Lambda tries again."""
    api = botocore.session.get_session().create_client("cloudformation")
    api.set_stack_policy(StackName=event["stack"], StackPolicyBody=json.dumps(POLICY))
