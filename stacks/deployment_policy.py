"""What CloudFormation may do when it deploys one cluster: policies that an administrator makes before the first deploy.

They are made from the templates of this cluster.yaml. deployment_actions.json is AWS's own data (but for its part `reviewed`):
which actions each resource's handler calls, and on what. deployment_policies.json says under which conditions.

    python -m stacks.deployment_policy --config cluster.yaml --out dist/policies

writes them to files, for review; `paddle-aws bootstrap` makes them and bootstraps with them.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer

from constructs_lib.statements import filled
from settings.errors import SettingError
from stacks.cluster_spec import POLICY_PATH, ClusterSpec

LIMIT = 6144
"""IAM's limit of a managed policy, characters, white space not counted."""

DATA: dict[str, Any] = json.loads(Path(__file__).with_name("deployment_actions.json").read_text(encoding="utf-8"))

WRITTEN: dict[str, Any] = json.loads(Path(__file__).with_name("deployment_policies.json").read_text(encoding="utf-8"))
"""Conditions of actions, as (actions, statement, condition), and whole policies; a dollar sign stands before what differs."""

NAMED: dict[str, str] = DATA["reviewed"]["named"]
"""What has a name in its ARN that a template gives, or CloudFormation by the stack's; and its resource type."""

TEAMS = ("Operator", "Trainer", "Reader")

TOKEN = "\0"
"""What only a deployment knows."""

Templates = Mapping[str, Mapping[str, Any]]
"""Templates by the name of their stack."""


def statements(spec: ClusterSpec, templates: Templates) -> list[dict[str, Any]]:
    """Every statement that deploying, changing and destroying these stacks takes, and no other."""
    kinds = {
        one["Type"] for _, one in _resources(templates) if not one["Type"].startswith(("AWS::CDK::", "AWS::CloudFormation::"))
    }
    if unknown := sorted(kinds - DATA["handlers"].keys()):
        allowed = "allowed are the types of tests/aws/variants: make it there, and read docs/deployment-policy.md"
        raise SettingError(f"a template has {', '.join(unknown)}: {allowed}")
    conditions = _written(spec, templates, kinds)["conditions"]
    found: dict[str, tuple[set[str], set[str], dict[str, Any]]]
    found = {"Parameters": ({"ssm:GetParameters"}, _parameters(spec, kinds), {})}
    for kind in sorted(kinds):
        for action in sorted({action for calls in DATA["handlers"][kind].values() for action in calls.split()}):
            service = action.partition(":")[0]
            on = DATA["actions"][action].split()
            arns = {arn for one in on for arn in _arns(spec, templates, action, f"{service}:{one}")} if on else {"*"}
            under = [(sid, condition) for pattern, sid, condition in conditions if re.fullmatch(pattern, action)]
            # Of what is meant by name, the templates may have none.
            for sid, condition in (under or [(service.capitalize() if on else "WhatHasNoArn", {})]) if arns else ():
                actions, resources, _ = found.setdefault(sid, (set(), set(), condition))
                actions.add(action)
                resources.update({"*"} if sid == "Look" else arns)
    return [{"Sid": sid, **_statement(*found[sid])} for sid in sorted(found)]


def _statement(actions: Iterable[str], resources: Iterable[str], conditions: Mapping[str, Any]) -> dict[str, Any]:
    allowed = {"Effect": "Allow", "Action": sorted(actions), "Resource": sorted(resources)}
    return {**allowed, **({"Condition": conditions} if conditions else {})}


def _resources(templates: Templates) -> list[tuple[str, Mapping[str, Any]]]:
    return [(stack, resource) for stack, template in templates.items() for resource in template.get("Resources", {}).values()]


def _written(spec: ClusterSpec, templates: Templates, kinds: Iterable[str] = ()) -> dict[str, Any]:
    """deployment_policies.json for this cluster. Actions that its conditions do not name have none."""

    def reviewed(part: str) -> list[str]:
        return sorted({name for kind in kinds for name in DATA["reviewed"][part].get(kind, "").split()})

    records = {
        one["Properties"]["Name"].rstrip(".") for _, one in _resources(templates) if one["Type"] == "AWS::Route53::RecordSet"
    }
    arn = f"arn:{_partition(spec)}:"
    iam = f"{arn}iam::"
    policies = [*_arns(spec, templates, "", "iam:policy"), *(f"{iam}aws:policy/{name}" for name in _of_aws(templates))]
    groups = [f"{iam}*:policy{POLICY_PATH}{spec.name}-{team.lower()}" for team in TEAMS]
    known = {
        "boundary": f"{iam}*:policy{POLICY_PATH}{spec.name}-boundary",
        "detachable": policies + groups,
        "groups": groups,
        "linked_role_of": reviewed("linked_role_of"),
        "looks_up": f"{iam}*:role/cdk-{spec.qualifier}-lookup-role-*",
        "mounted": {} if spec.file_system.existing else {"StringEquals": {"aws:ResourceTag/cluster": spec.name}},
        "name": spec.name,
        "passed_to": reviewed("passed_to"),
        "policies": policies,
        "records": sorted(records),
        "services": f"*.{spec.region}.amazonaws.com*",
        "stacks": [f"{arn}cloudformation:{spec.region}:*:stack/{name}/*" for name in spec.stack_names],
        **{team.lower(): f"{iam}*:role/{_made_up(f'{spec.name}-access')}People{team}Role*" for team in TEAMS},
    }
    found: dict[str, Any] = filled(WRITTEN, known)
    return found


def _of_aws(templates: Templates) -> list[str]:
    """AWS's own policies that the templates name."""
    return sorted(set(re.findall(r":iam::aws:policy/([\w/-]+)", json.dumps(templates))))


def _parameters(spec: ClusterSpec, kinds: set[str]) -> set[str]:
    """The bootstrap's version, which templates name, and the image of a self-managed node: AWS's own has no account."""
    own = {f"arn:{_partition(spec)}:ssm:{spec.region}:*:parameter/cdk-bootstrap/{spec.qualifier}/*"}
    images = {"ami-amazon-linux-latest"} if spec.cluster.has_tunnel or spec.cluster.self_managed else set()
    images |= set() if spec.cluster.self_managed else {"eks"}
    theirs = {f"arn:{_partition(spec)}:ssm:{spec.region}::parameter/aws/service/{one}/*" for one in images}
    return own | (theirs if "AWS::AutoScaling::AutoScalingGroup" in kinds else set())


def _arns(spec: ClusterSpec, templates: Templates, action: str, kind: str) -> list[str]:
    """What is meant of a kind, such as `iam:role`: by name where its ARN has one."""
    cluster, file_system, zone = spec.cluster_name, spec.file_system.existing, spec.zone.existing
    key_pair = any(one["Type"] == "AWS::EC2::KeyPair" for _, one in _resources(templates))
    known = {
        "iam:CreateServiceLinkedRole": ["aws-service-role/*"],
        "ec2:CreateKeyPair": [spec.name],
        "ec2:DeleteKeyPair": [spec.name],
        "eks:cluster": [cluster],
        "elasticfilesystem:file-system": [file_system.id if file_system else "*"],
        "iam:oidc-provider": [f"oidc.eks.{spec.region}.*"],
        "kms:key": [(spec.key.existing_arn or "*").rpartition("/")[2]],
        "route53:hostedzone": [zone.id if zone else "*"],
        # The CDK's marker in the stack of a cluster, and where EC2 keeps the private half of a key pair.
        "ssm:parameter": ["CFN-*", *(["ec2/keypair/*"] if key_pair else [])],
    }
    others = [f"{cluster}/*" if kind.startswith("eks:") else "*"]
    if kind in NAMED:
        others = sorted({_name(spec, stack, one) for stack, one in _resources(templates) if one["Type"] == NAMED[kind]})
    names = known.get(action, known.get(kind, others))
    form = DATA["arns"][kind].replace("${Partition}", _partition(spec)).replace("${Region}", spec.region)
    if kind.startswith("autoscaling:"):
        form += "*:autoScalingGroupName/"
    # The policy's own account: an identity's policy reaches no other.
    return [form.replace("${Account}", "*") + name for name in names]


def _name(spec: ClusterSpec, stack: str, resource: Mapping[str, Any]) -> str:
    """The name of a resource, with a star where the cluster's next change may make another."""
    properties = resource.get("Properties", {})
    name = {**properties, **properties.get("Budget", {})}.get(DATA["names"][resource["Type"]])
    if not isinstance(name, str):
        return _made_up(stack)
    return re.sub(rf"((?:.*/)?(?:{spec.name}|{spec.cluster_name})/|{stack}-).+", r"\1*", name.removeprefix("alias/"))


def _made_up(stack: str) -> str:
    """Names that CloudFormation makes up: in one that gets too long it keeps 24 characters of the stack's."""
    return f"{stack}-*" if len(stack) <= 24 else f"{stack[:24]}*"


def _partition(spec: ClusterSpec) -> str:
    return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(spec.region.rpartition("-")[0].rpartition("-")[0], "aws")


def boundary(spec: ClusterSpec, templates: Templates) -> list[dict[str, Any]]:
    """The most that a role may do: what the policies of the roles allow, by the names of the templates or the tag `cluster`.

    One for all roles. What of it stands under the same condition, in the same service, is one statement.
    """
    merged: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
    for stack, statement in _given(templates):
        for action in _listed(statement["Action"]):
            service = action.partition(":")[0]
            meant = [arn for one in _listed(statement["Resource"]) for arn in _meant(spec, templates, stack, action, one)]
            # Of a statement about several services an action means its own, where it has any.
            for arn in [arn for arn in meant if arn.split(":")[2:3] == [service]] or meant:
                conditions = {
                    test: {key: [_text(spec, stack, one) for one in _listed(value)] for key, value in keys.items()}
                    for test, keys in statement.get("Condition", {}).items()
                }
                if arn.endswith((":key/*", ":volume/*")):
                    conditions.setdefault("StringEquals", {})["aws:ResourceTag/cluster"] = [spec.name]
                under = json.dumps(conditions, sort_keys=True), "*" if arn == "*" else service
                actions, arns = merged.setdefault(under, (set(), set()))
                actions.add(action)
                arns.add(arn)
    everywhere = merged[json.dumps({}), "*"][0]
    # All of EC2's Describe, for length, but for what shows user data (WRITTEN).
    everywhere -= {action for action in everywhere if action.startswith("ec2:Describe")}
    everywhere.add("ec2:Describe*")
    found: list[dict[str, Any]] = _written(spec, templates)["never"]
    for (conditions_text, _), (actions, arns) in sorted(merged.items()):
        widest = {arn for arn in arns if not any(arn != wide and fnmatchcase(arn, wide) for wide in arns)}
        if left := actions if "*" in arns else actions - everywhere:
            found.append(_statement(left, widest, json.loads(conditions_text)))
    return found


def _given(templates: Templates) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(stack, statement) of all that the roles' policies allow."""
    for stack, one in _resources(templates):
        if one["Type"] == "AWS::IAM::ManagedPolicy":
            yield from ((stack, each) for each in one["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Allow")
    yield from (("", statement) for name in _of_aws(templates) for statement in DATA["reviewed"]["aws_policies"][name])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _meant(spec: ClusterSpec, templates: Templates, stack: str, action: str, resource: Any) -> list[str]:
    """ARNs of a policy's resource. One that a template makes: of all that are of its kind."""
    # Files by their checksum: a new release must not need a new boundary.
    text = re.sub("/[0-9a-f]{64}.*", "/*", _text(spec, stack, resource))
    if not text.startswith(TOKEN):
        return [text.replace(TOKEN, "*")]
    service = action.partition(":")[0]
    rest = ":*" if service == "logs" else text.removeprefix(TOKEN)
    kind = DATA["reviewed"]["kinds"][service].split()[-1].lower()
    return [arn + rest for arn in _arns(spec, templates, "", f"{service}:{kind}")]


def _text(spec: ClusterSpec, stack: str, value: Any) -> str:
    """A template's string, with TOKEN for what is no name of this account's or region's."""
    partition = _partition(spec)
    known = {
        "AWS::AccountId": "*",
        "AWS::Partition": partition,
        "AWS::StackId": f"arn:{partition}:cloudformation:{spec.region}:*:stack/{stack}/*",
        "AWS::URLSuffix": "amazonaws.com" + (".cn" if partition == "aws-cn" else ""),
    }
    match value:
        case str():
            return value
        case {"Fn::Join": [between, parts]}:
            return str(between).join(_text(spec, stack, part) for part in parts)
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{(AWS::\w+)\}", lambda found: known[found[1]], text)
        case {"Ref": str(name)} if name in known:
            return known[name]
    return TOKEN


def documents(spec: ClusterSpec, templates: Templates) -> dict[str, dict[str, Any]]:
    """Every policy by its name. Raises SettingError where the boundary is longer than IAM takes."""
    deploy: list[list[dict[str, Any]]] = [[]]
    for statement in statements(spec, templates):
        if size(_document([*deploy[-1], statement])) > LIMIT:
            deploy.append([])
        deploy[-1].append(statement)
    found = {
        **{f"deploy-{number}": one for number, one in enumerate(deploy, 1)},
        "boundary": boundary(spec, templates),
        **_written(spec, templates)["policies"],
    }
    if (long := size(_document(found["boundary"]))) > LIMIT:
        raise SettingError(f"the permissions boundary has {long} characters, and IAM takes {LIMIT}: use shorter names")
    return {f"{spec.name}-{name}": _document(one) for name, one in found.items()}


def _document(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": statements}


def size(document: dict[str, Any]) -> int:
    """Characters as IAM counts them."""
    return len(json.dumps(document, separators=(",", ":")))


def main(
    config: Annotated[Path, typer.Option(help="The cluster's settings.")] = Path("cluster.yaml"),
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("dist/policies"),
) -> None:
    """Write the policies of a restricted deployer to files, for review."""
    try:
        spec = ClusterSpec.load(config)
        if spec.deployer != "restricted":
            raise SettingError(f"{config}: deployer is {spec.deployer}: set it restricted, which gives each role a boundary")
        policies = documents(spec, synthesized(spec))
    except SettingError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    out.mkdir(parents=True, exist_ok=True)
    for name, document in policies.items():
        file = out / f"{name}.json"
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        print(file)


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
    typer.run(main)
