"""The examples in the docstrings of constructs run, in the process that has the other constructs.

They are given what a stack author has: `stack`, and in it `vpc` and `cluster`, an existing one.
"""

import doctest
import importlib

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks

from .built import PROJECT

MODULES = [
    ".".join(file.relative_to(PROJECT).with_suffix("").parts)
    for file in sorted((PROJECT / "constructs_lib").rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name: str) -> None:
    for example in doctest.DocTestFinder().find(importlib.import_module(name)):
        if example.examples:
            stack = Stack(App(), "vision")
            vpc = ec2.Vpc(stack, "Vpc")
            cluster = eks.Cluster.from_cluster_attributes(
                stack,
                "Existing",
                cluster_name="existing",
                cluster_security_group_id="sg-0123456789abcdef0",
                cluster_endpoint="https://existing.example.com",
                cluster_certificate_authority_data="Y2E=",
                vpc=vpc,
            )
            example.globs |= {"stack": stack, "vpc": vpc, "cluster": cluster}
        doctest.DebugRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(example)
