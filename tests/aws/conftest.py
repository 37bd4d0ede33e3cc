"""What the AWS tests share: one jsii process, no account, no lookups, and each settings file
synthesized once.

Only test_security_review.py runs the CDK's own validation, which costs seconds each time.
"""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddle_aws.stacks.cluster_spec import ClusterSpec

from .built import PROJECT, Built

CFNLINT = Path(str(find_spec("cfnlint").origin)).parent / "data"  # type: ignore[union-attr]
"""AWS's resource schemas, types by region and service reference, as bundled with cfn-lint."""
VARIANTS = Path(__file__).parent / "variants"
TABLE = yaml.safe_load((PROJECT / "tests" / "aws" / "templates.yaml").read_text())
FILES = {
    "shipped": PROJECT / "cluster.yaml",
    **{file.stem: file for file in sorted(VARIANTS.glob("*.yaml"))},
}


def built(locks: Path | None = None, **settings: Any) -> Built:
    """Synthesizes the default settings with `retain: false`, overridden by `settings`."""
    return Built(ClusterSpec.model_validate({"retain": False, **settings}), locks)


@functools.cache
def _variant(name: str) -> Built:
    if name in FILES:
        return Built(ClusterSpec.load(FILES[name]))
    return built(VARIANTS / "locks" if name == "otherwise" else None, **TABLE["settings"][name])


@pytest.fixture(scope="session")
def variant() -> Callable[[str], Built]:
    """A function that synthesizes, once, a settings file of tests/aws/variants (or `shipped`), or
    settings of templates.yaml.
    """
    return _variant


@pytest.fixture(scope="session")
def types() -> set[str]:
    """The AWS types of all resources that the variants create."""
    kinds = {
        resource["Type"]
        for name in FILES
        for template in _variant(name).templates.values()
        for resource in template.get("Resources", {}).values()
    }
    return {
        kind
        for kind in kinds
        if not kind.startswith(("Custom::", "AWS::CloudFormation::", "AWS::CDK::"))
    }


@pytest.fixture(params=list(FILES))
def each_variant(request: pytest.FixtureRequest) -> Built:
    return _variant(request.param)
