"""What the tests of the boot scripts share: an account, a control plane and a node that really boot."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from machine import Account, Machine, missing


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    if reason := missing():
        pytest.skip(reason)
    made = Account(tmp_path / "account")
    yield made
    made.close()


@pytest.fixture
def control_plane(account: Account, tmp_path: Path) -> Machine:
    return Machine(account, tmp_path / "first", "i-0000000000000000a", "control-plane")


@pytest.fixture
def successor(account: Account, tmp_path: Path) -> Machine:
    """The machine that takes a terminated control plane's place."""
    return Machine(account, tmp_path / "second", "i-0000000000000000b", "control-plane")


@pytest.fixture
def node(account: Account, tmp_path: Path) -> Machine:
    made = Machine(account, tmp_path / "node", "i-000000000000000c0", "node")
    made.shown_ca = "the cluster's CA"
    return made
