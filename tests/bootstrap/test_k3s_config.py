"""Every key that our scripts write to k3s's config.yaml is an option of k3s; k3s_options.yaml says where that was read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from machine import SCRIPTS

OPTIONS = yaml.safe_load((Path(__file__).parent / "k3s_options.yaml").read_text())


@pytest.mark.parametrize(("script", "command"), [("control-plane.sh", "server"), ("node.sh", "agent")])
def test_keys_are_options(script: str, command: str) -> None:
    text = (SCRIPTS / script).read_text()
    body = text[text.index("configure() {") :]
    body = body[: body.index("write /etc/rancher/k3s/config.yaml")]
    keys = set(re.findall(r"^([a-z0-9-]+):", body, re.MULTILINE)) | set(re.findall(r"^ +list ([a-z-]+) ", body, re.MULTILINE))
    assert len(keys) > 4
    assert keys <= set(OPTIONS[command]), keys - set(OPTIONS[command])


def test_restore_uses_options() -> None:
    used = set(re.findall(r" --([a-z-]+)=?", re.search(r"\"\$K3S\" server (.*)", (SCRIPTS / "restore.sh").read_text())[0]))
    assert used == {"cluster-reset", "cluster-reset-restore-path"}
    assert used <= set(OPTIONS["server"])
