"""Who else may use a KMS key: AWS's services, for this account's resources only.

A construct of ours that is given a key of the same app opens it to the services that must use it,
and to no others. An imported key stays as it is.
"""

from pathlib import Path

from aws_cdk import aws_kms as kms

from constructs_lib.acknowledged import acknowledge
from constructs_lib.statements import statements

STARS = {
    "node volumes": "the star in NodeVolumes is limited to this account's own role of Auto "
    "Scaling, by kms:CallerAccount and aws:PrincipalArn",
}
"""Why a statement may name every principal."""
POLICY = Path(__file__).with_name("key_policy.json")


def allow_use(key: kms.IKey | None, *users: str) -> None:
    """Lets `users`, which are parts of key_policy.json, use `key`, if there is one. Adds no
    statement that `key` has already.

    Without `log groups`, CloudWatch Logs refuses an encrypted group (the group is KMS's encryption
    context). Without `node volumes`, no node starts. `alarms` lets CloudWatch alarms reach topics
    that the key encrypts. Auto Scaling's role is named in a condition, not as principal: in an
    account that never had an Auto Scaling group it does not exist yet, and KMS refuses a policy
    with such a principal.
    """
    if key is None:
        return
    values = {
        "partition": key.stack.partition,
        "region": key.stack.region,
        "account": key.stack.account,
    }
    for user in users:
        for statement in statements(POLICY, user, **values):
            added = key.add_to_resource_policy(statement)
            resource = key.node.default_child
            if added.statement_added and resource is not None and user in STARS:
                acknowledge(key, STARS[user], "CKV_AWS_33")
