"""The CDK's feature flags of an app change nothing of the platform: our cdk.json, a fresh `cdk
init` and no flags at all give the same templates. docs/stability.md names the flags that we fix.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.part import FLAGS

from .built import CONTEXT, PROJECT, build
from .conftest import FILES

INIT = "aws-cdk/lib/init-templates/.recommended-feature-flags.json"
FRESH = json.loads((PROJECT / "node_modules" / INIT).read_text())
"""The context of an app that `cdk init` has just made."""


def templates(spec: ClusterSpec, context: dict[str, Any]) -> dict[str, Any]:
    app = App(context=context, analytics_reporting=False)
    build(app, spec)
    return {stack.stack_name: stack.template for stack in app.synth().stacks}


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("shipped", "self-managed-cluster") else pytest.param(name, marks=long)
        for long in [[pytest.mark.slow, pytest.mark.long]]
        for name in FILES
    ],
)
def test_the_templates_are_the_same(name: str) -> None:
    spec = ClusterSpec.load(FILES[name])
    ours, fresh, none = (templates(spec, context) for context in (CONTEXT, FRESH, {}))
    assert ours == fresh and ours == none


def test_the_page_names_each_fixed_flag() -> None:
    page = Path(PROJECT / "docs/stability.md").read_text()
    named = set(re.findall(r"^\| `(@aws-cdk/[^`]+)` ", page, re.M))
    assert named == FLAGS.keys()
