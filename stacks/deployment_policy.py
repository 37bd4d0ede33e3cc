"""What CloudFormation may do when it deploys one cluster: policy files for `cdk bootstrap --cloudformation-execution-policies`.

Promises: made from the templates of this cluster.yaml, before anything is deployed: which actions each resource's handler
calls, and on what, is AWS's own data (deployment_actions.json; its part `reviewed` is the only one written by hand). Each file
is below IAM's 6,144 characters; what has a name is limited to the names that these templates give; what has a tag is changed
and deleted by the tag `cluster` alone; keys seal and unseal through AWS's services alone; roles go to named services.

    python -m stacks.deployment_policy --config cluster.yaml --out dist/policies

writes the files and prints the commands that make the policies and bootstrap with them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from settings.errors import SettingError
from stacks.cluster_spec import ClusterSpec

LIMIT = 6144
"""IAM's limit of a managed policy, characters, white space not counted."""

PATH = "/deployment/"
"""The IAM path of these policies: no policy that a template makes has a name that leads there."""

DATA: dict[str, Any] = json.loads(Path(__file__).with_name("deployment_actions.json").read_text(encoding="utf-8"))

LOOK = r"(?!s3:|secretsmanager:)[a-z0-9-]+:(Describe|List|View).*|iam:Get.*"
"""Actions that tell what there is, and no data."""

OURS = (
    r"ec2:(CreateLaunchTemplateVersion|CreateTags|(Create|Replace)Route|Delete(?!KeyPair|NetworkInterface).*|Detach.*|Release.*"
    r"|Modify(?!NetworkInterface|VpcEndpoint).*)|elasticfilesystem:(DeleteTags|(Delete|Put|Update).*(System|Policy)"
    r"|PutLifecycle.*|(Tag|Untag)Resource)|kms:(Disable.*|PutKeyPolicy|Schedule.*|(Tag|Untag)Resource|UpdateKeyDescription)"
)
"""Actions on things that only we make, and tag as they are made."""

NAMED: dict[str, str] = DATA["reviewed"]["named"]
"""What has a name in its ARN that a template gives, or CloudFormation by the stack's; and its resource type."""

RECORD = "AWS::Route53::RecordSet"

Templates = Mapping[str, Mapping[str, Any]]
"""Templates by the name of their stack."""


@dataclass
class Statement:
    """Actions under one condition, on what, and the resource types whose handlers call them."""

    sid: str
    conditions: dict[str, Any]
    actions: set[str] = field(default_factory=set)
    resources: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)

    def document(self) -> dict[str, Any]:
        """As IAM takes it."""
        said = {"Sid": self.sid, "Effect": "Allow", "Action": sorted(self.actions), "Resource": sorted(self.resources)}
        return {**said, **({"Condition": self.conditions} if self.conditions else {})}


def statements(spec: ClusterSpec, templates: Templates) -> list[Statement]:
    """Every statement that deploying, changing and destroying these stacks takes, and no other."""
    kinds = {
        one["Type"] for _, one in _resources(templates) if not one["Type"].startswith(("AWS::CDK::", "AWS::CloudFormation::"))
    }
    if unknown := sorted(kinds - DATA["handlers"].keys()):
        allowed = "allowed are the types of tests/aws/variants: make it there, and read docs/deployment-policy.md"
        raise SettingError(f"a template has {', '.join(unknown)}: {allowed}")
    conditions = _conditions(spec, templates, kinds)
    found = {"Parameters": Statement("Parameters", {}, {"ssm:GetParameters"}, _parameters(spec, kinds), {"CDKToolkit"})}
    for kind in sorted(kinds):
        for action in sorted({action for calls in DATA["handlers"][kind].values() for action in calls.split()}):
            service = action.partition(":")[0]
            on = DATA["actions"][action].split()
            arns = {arn for one in on for arn in _arns(spec, templates, action, f"{service}:{one}")} if on else {"*"}
            under = [(sid, condition) for pattern, sid, condition in conditions if re.fullmatch(pattern, action)]
            if not arns:
                # Of what is meant by name, the templates have none.
                continue
            for sid, condition in under or [(service.capitalize() if on else "WhatHasNoArn", {})]:
                statement = found.setdefault(sid, Statement(sid, condition))
                statement.actions.add(action)
                statement.types.add(kind)
                statement.resources = {"*"} if sid == "Look" else statement.resources | arns
    return [found[sid] for sid in sorted(found)]


def _resources(templates: Templates) -> list[tuple[str, Mapping[str, Any]]]:
    return [(stack, resource) for stack, template in templates.items() for resource in template.get("Resources", {}).values()]


def _conditions(spec: ClusterSpec, templates: Templates, kinds: set[str]) -> list[tuple[str, str, dict[str, Any]]]:
    """(actions, the statement they stand in, its condition); other actions stand in their service's own, without one."""

    def reviewed(part: str) -> list[str]:
        return sorted({name for kind in kinds for name in DATA["reviewed"][part].get(kind, "").split()})

    ours = {"StringEquals": {"aws:ResourceTag/cluster": spec.name}}
    theirs = sorted(set(re.findall(r":iam::(aws:policy/[\w/-]+)", json.dumps(templates))))
    attachable = [*_arns(spec, templates, "", "iam:policy"), *(f"arn:{_partition(spec)}:iam::{policy}" for policy in theirs)]
    mounted = {} if spec.file_system.existing else ours
    new = {"StringEquals": {"aws:RequestTag/cluster": spec.name}}
    via = {"StringLike": {"kms:ViaService": f"*.{spec.region}.amazonaws.com*"}}
    records = sorted({one["Properties"]["Name"].rstrip(".") for _, one in _resources(templates) if one["Type"] == RECORD})
    named = {"ForAllValues:StringEquals": {"route53:ChangeResourceRecordSetsNormalizedRecordNames": records}}
    return [
        (LOOK, "Look", {}),
        ("iam:PassRole", "HandOnRoles", {"StringEquals": {"iam:PassedToService": reviewed("passed_to")}}),
        ("iam:CreateServiceLinkedRole", "ServicesOwnRoles", {"StringEquals": {"iam:AWSServiceName": reviewed("linked_role_of")}}),
        ("iam:(At|De)tach.*Policy", "AttachPolicies", {"ArnLike": {"iam:PolicyARN": attachable}}),
        ("kms:CreateGrant", "GrantKey", {"Bool": {"kms:GrantIsForAWSResource": "true"}}),
        ("kms:(Decrypt|Encrypt|GenerateDataKey.*|ReEncrypt.*)", "SealWithKey", via),
        ("route53:ChangeResourceRecordSets", "Records", named),
        ("eks:CreateCluster|elasticfilesystem:CreateFileSystem|kms:CreateKey", "MakeOurs", new),
        (OURS, "ChangeOurs", ours),
        ("elasticfilesystem:(Create|Delete|Modify).*(AccessPoint|MountTarget).*", "Mount", mounted),
        ("ec2:(Create|Delete)KeyPair", "KeyPair", {}),
        # A tag says what is ours: it goes onto what is made in the same call, and onto what has it.
        ("ec2:CreateTags", "TagNewEc2", {"Null": {"ec2:CreateAction": "false"}}),
        ("elasticfilesystem:TagResource", "TagNewEfs", {"Null": {"elasticfilesystem:CreateAction": "false"}}),
        ("kms:TagResource", "TagNewKey", {"Null": {"kms:ResourceAliases": "true"}}),
    ]


def _parameters(spec: ClusterSpec, kinds: set[str]) -> set[str]:
    """The bootstrap's version, which templates name, and the image of a self-managed node: AWS's own has no account."""
    own = {f"arn:{_partition(spec)}:ssm:{spec.region}:*:parameter/cdk-bootstrap/*"}
    images = {"ami-amazon-linux-latest"} if spec.cluster.has_tunnel or spec.cluster.self_managed else set()
    images |= set() if spec.cluster.self_managed else {"eks"}
    theirs = {f"arn:{_partition(spec)}:ssm:{spec.region}::parameter/aws/service/{one}/*" for one in images}
    return own | (theirs if "AWS::AutoScaling::AutoScalingGroup" in kinds else set())


def _arns(spec: ClusterSpec, templates: Templates, action: str, kind: str) -> list[str]:
    """What is meant of a kind, such as `iam:role`: by name where its ARN has one."""
    cluster = spec.cluster_name
    file_system, zone = spec.file_system.existing, spec.zone.existing
    known = {
        "eks:cluster": cluster,
        "elasticfilesystem:file-system": file_system.id if file_system else "*",
        "iam:oidc-provider": f"oidc.eks.{spec.region}.*",
        "kms:key": (spec.key.existing_arn or "*").rpartition("/")[2],
        "route53:hostedzone": zone.id if zone else "*",
    }
    if action == "iam:CreateServiceLinkedRole":
        names = ["aws-service-role/*"]
    elif action in ("ec2:CreateKeyPair", "ec2:DeleteKeyPair"):
        names = [spec.name]
    elif kind in NAMED:
        names = sorted({_name(spec, stack, one) for stack, one in _resources(templates) if one["Type"] == NAMED[kind]})
    elif kind == "ssm:parameter":
        # The CDK's marker in the stack of a cluster, and where EC2 keeps the private half of a key pair.
        names = ["CFN-*", "ec2/keypair/*"]
    else:
        names = [known.get(kind, f"{cluster}/*" if kind.startswith("eks:") else "*")]
    form = DATA["arns"][kind].replace("${Partition}", _partition(spec)).replace("${Region}", spec.region)
    if kind.startswith("autoscaling:"):
        form += "*:autoScalingGroupName/"
    # The account is whoever's the policy is in: an identity's policy reaches no other.
    return [form.replace("${Account}", "*") + name for name in names]


def _name(spec: ClusterSpec, stack: str, resource: Mapping[str, Any]) -> str:
    """The name of a resource, with a star where the cluster's next change may make another."""
    properties = resource.get("Properties", {})
    name = {**properties, **properties.get("Budget", {})}.get(DATA["names"][resource["Type"]])
    if not isinstance(name, str):
        # CloudFormation makes it up; in a name that gets too long it keeps 24 characters of the stack's.
        return f"{stack}-*" if len(stack) <= 24 else f"{stack[:24]}*"
    return re.sub(rf"((?:.*/)?(?:{spec.name}|{spec.cluster_name})/|{stack}-).+", r"\1*", name.removeprefix("alias/"))


def _partition(spec: ClusterSpec) -> str:
    return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(spec.region.rpartition("-")[0].rpartition("-")[0], "aws")


def documents(spec: ClusterSpec, templates: Templates) -> dict[str, dict[str, Any]]:
    """The policies by file name, as few as hold all statements."""
    files: list[list[dict[str, Any]]] = [[]]
    for statement in statements(spec, templates):
        document = statement.document()
        if size(_document([*files[-1], document])) > LIMIT:
            files.append([])
        files[-1].append(document)
    return {f"{spec.name}-deploy-{number}.json": _document(found) for number, found in enumerate(files, 1)}


def _document(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": statements}


def size(document: dict[str, Any]) -> int:
    """Characters as IAM counts them."""
    return len(json.dumps(document, separators=(",", ":")))


def main(arguments: list[str] | None = None) -> int:
    """Writes the files; 2 if the settings cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m stacks.deployment_policy", description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path("cluster.yaml"), help="the cluster's settings (cluster.yaml)")
    parser.add_argument("--out", type=Path, default=Path("dist/policies"), help="where the files go (dist/policies)")
    options = parser.parse_args(arguments)
    try:
        spec = ClusterSpec.load(options.config)
        policies = documents(spec, synthesized(spec))
    except SettingError as error:
        print(error, file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    names = []
    for name, document in policies.items():
        (options.out / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        names.append(name.removesuffix(".json"))
        made = f"--policy-name {names[-1]} --path {PATH} --policy-document file://{options.out / name}"
        print(f"aws iam create-policy {made}")
    partition = _partition(spec)
    account = "$(aws sts get-caller-identity --query Account --output text)"
    arns = ",".join(f"arn:{partition}:iam::{account}:policy{PATH}{name}" for name in names)
    print(f'cdk bootstrap --cloudformation-execution-policies "{arns}" aws://{account}/{spec.region}')
    return 0


def synthesized(spec: ClusterSpec) -> Templates:
    """The templates of `spec`'s stacks, by the stacks' names."""
    # Node.js lies beside Python; the stacks are validated where they are deployed.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    os.environ["CDK_VALIDATION"] = "false"
    from aws_cdk import App

    from stacks.build import build

    project = Path(__file__).parents[1]
    app = App(analytics_reporting=False, context=json.loads((project / "cdk.json").read_text(encoding="utf-8"))["context"])
    build(app, spec, locks=project / "locks")
    return {stack.stack_name: stack.template for stack in app.synth().stacks}


if __name__ == "__main__":
    sys.exit(main())
