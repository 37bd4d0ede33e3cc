"""What holds for every room's tests."""

import fcntl
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

# A shell's background job (`make test &`, a CI's wrapper) ignores SIGINT, and so would every
# program that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest tests, whole rehearsals, first: else one worker ends with such a test while
    the other has nothing left.
    """
    items.sort(key=lambda item: "rehearsal" not in item.path.parts)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[], Any]], Any]:
    """`once(name, make)` calls `make` in one worker of this run, and returns what it made, as JSON,
    in all: tests of one module may run in several.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def result(name: str, make: Callable[[], Any]) -> Any:
        file = shared / f"{name}.json"
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                file.write_text(json.dumps(make()))
        return json.loads(file.read_text())

    return result
