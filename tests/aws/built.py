"""Synthesizes settings: the templates, and a template's values as a deployment would resolve
them.
"""

# The environment has to be set before jsii starts Node.
# ruff: noqa: E402

import json
import os
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("CDK_VALIDATION", "false")
os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "20"
PROJECT = Path(__file__).parents[2]
_NODE = PROJECT / ".venv" / "bin"
if _NODE.is_dir():
    os.environ["PATH"] = f"{_NODE}{os.pathsep}{os.environ['PATH']}"

from aws_cdk import App
from constructs import Construct

from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.platform import TrainingPlatform

CONTEXT = json.loads((PROJECT / "cdk.json").read_text())["context"]
ACCOUNT, HERE = "000000000000", "us-west-2:000000000000"
NAMES = {
    # What CloudFormation might return for a resource of each type: its ARN, or the name or id where
    # a template uses that.
    "AWS::EC2::KeyPair": "key-0123456789abcdef0",
    "AWS::EC2::Volume": "vol-1",
    "AWS::IAM::Role": f"arn:aws:iam::{ACCOUNT}:role/{{}}-x",
    "AWS::KMS::Key": f"arn:aws:kms:{HERE}:key/01234567-89ab-cdef-0123-456789abcdef",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{HERE}:log-group:{{}}-x:*",
    "AWS::S3::Bucket": "arn:aws:s3:::{}-x",
    "AWS::SecretsManager::Secret": f"arn:aws:secretsmanager:{HERE}:secret:{{}}-AbCdEf",
    "AWS::SNS::Topic": f"arn:aws:sns:{HERE}:{{}}-x",
}


def listed(value: Any) -> list[Any]:
    """Returns `value` as a list: AWS's documents may write a list of one as its only member."""
    return value if isinstance(value, list) else [value]


def by_type(resources: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Returns what queries search: by type, each resource's properties together with the attributes
    beside them.
    """
    grouped: dict[str, list[dict[str, Any]]] = {}
    for id, resource in resources.items():
        beside = {
            "Id": id,
            "Deletion": resource.get("DeletionPolicy"),
            "Update": resource.get("UpdatePolicy"),
        }
        whole = {
            **beside,
            "DependsOn": resource.get("DependsOn", []),
            **resource.get("Properties", {}),
        }
        grouped.setdefault(resource["Type"].removeprefix("AWS::").replace("::", ""), []).append(
            whole
        )
    return grouped


def build(scope: Construct, spec: ClusterSpec, *, locks: Path | None = None) -> TrainingPlatform:
    """Makes the stacks of one cluster directly below an app or a Stage, as app.py does."""
    name = f"{spec.name}-platform"
    return TrainingPlatform(scope, name, spec, stacks_in=scope, locks=locks)


class Built:
    """One settings file, synthesized."""

    account: ClassVar = ACCOUNT
    names: ClassVar = NAMES

    def __init__(self, spec: ClusterSpec, locks: Path | None = None) -> None:
        self.spec = spec
        self.app = App(context=CONTEXT, analytics_reporting=False)
        build(self.app, spec, locks=locks)
        self.assembly = self.app.synth()
        self.templates: dict[str, dict[str, Any]] = {
            stack.stack_name.removeprefix(f"{spec.name}-"): stack.template
            for stack in self.assembly.stacks
        }

    def resources(self, kind: str, stack: str | None = None) -> list[dict[str, Any]]:
        """Returns the properties of all resources of one type."""
        return [resource["Properties"] for resource in self.whole(kind, stack).values()]

    def whole(self, kind: str, stack: str | None = None) -> dict[str, dict[str, Any]]:
        """Returns all resources of one type, by logical id."""
        return {
            name: {"Properties": {}, **resource}
            for key, template in self.templates.items()
            if stack in (None, key)
            for name, resource in template.get("Resources", {}).items()
            if resource["Type"] == kind
        }

    def resolved(self, stack: str, value: Any) -> Any:
        """Returns a template's value as a deployment would resolve it."""
        if isinstance(value, str):
            return value.replace("${AWS::AccountId}", self.account).replace(
                "${AWS::Region}", self.spec.region
            )
        if isinstance(value, list):
            return [self.resolved(stack, item) for item in value]
        match value:
            case {"Fn::Join": [between, parts]}:
                return str(between).join(self.resolved(stack, parts))
            case {"Fn::Sub": text}:
                return self.resolved(stack, text)
            case {"Fn::ImportValue": export}:
                other = export.partition(":")[0].removeprefix(f"{self.spec.name}-")
                exports = self.templates[other]["Outputs"].values()
                return next(
                    self.resolved(other, output["Value"])
                    for output in exports
                    if output.get("Export", {}).get("Name") == export
                )
            case {"Ref": name} | {"Fn::GetAtt": [name, _]}:
                pass
            case _:
                return {key: self.resolved(stack, item) for key, item in value.items()}
        pseudo = {
            "AWS::Partition": "aws",
            "AWS::AccountId": self.account,
            "AWS::URLSuffix": "amazonaws.com",
        }
        pseudo["AWS::StackId"] = f"arn:aws:cloudformation:{HERE}:stack/{self.spec.name}-{stack}/1"
        if name in pseudo:
            return pseudo[name]
        resource = self.templates[stack]["Resources"][name]
        properties = resource.get("Properties", {})
        physical_id = (
            properties.get("Name")
            or properties.get("LogGroupName")
            or f"{self.spec.name}-{stack}-{name}"
        )
        return self.names[resource["Type"]].format(physical_id)
