"""Reviews variants with cdk-nag (AwsSolutions, NIST 800-53 R5) and the CDK's own validation, and
writes the findings as JSON: `python -m tests.aws.security_review FILE NAME...`.

It is a separate program because the tests' process has the CDK's validation off. It records
acknowledgments instead of making them, so that one run shows both unexplained findings and
explanations that no finding needs.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import cdk_nag
from aws_cdk import App, Validations
from constructs import IConstruct

from constructs_lib import acknowledged
from paddle_aws.stacks.cluster_spec import ClusterSpec
from tests.aws.built import CONTEXT, build
from tests.aws.conftest import FILES

acknowledgements: list[tuple[str, str, str]] = []


def record_rules(scope: IConstruct, rules: list[Any]) -> None:
    acknowledgements.extend((scope.node.path, rule.id, rule.reason) for rule in rules)


def review(file: Path) -> dict[str, Any]:
    acknowledgements.clear()
    with tempfile.TemporaryDirectory() as out:
        app = App(context=CONTEXT, analytics_reporting=False, outdir=out)
        Validations.of(app).add_plugins(
            cdk_nag.AwsSolutionsChecks(app, verbose=False),
            cdk_nag.NIST80053R5Checks(app, verbose=False),
        )
        build(app, ClusterSpec.load(file))
        try:
            app.synth()
        except RuntimeError as error:
            if "ValidationFailed" not in str(error):
                raise
        report = json.loads((Path(out) / "validation-report.json").read_text())
    findings = []
    for plugin in report["pluginReports"]:
        for violation in plugin["violations"]:
            rule = violation["ruleName"]
            if "::" not in rule.partition("[")[0]:
                rule = f"{plugin['pluginName'].replace(' ', '-')}::{rule}"
            findings += [
                (construct["constructPath"], rule) for construct in violation["violatingConstructs"]
            ]
    return {"findings": findings, "acknowledged": list(acknowledgements)}


if __name__ == "__main__":
    acknowledged.record = record_rules
    Path(sys.argv[1]).write_text(json.dumps({name: review(FILES[name]) for name in sys.argv[2:]}))
