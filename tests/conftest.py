"""What holds for every room's tests."""

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# A shell's background job (`make test &`, a CI's wrapper) ignores SIGINT, and so would every
# program that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST = (
    "emulator/test_variants",
    "rehearsal/test_readme",
    "operations/test_doctor",
    "image/test_container",
    "frame/test_wheel",
    "storm/test_parameter_servers",
    "emulator/test_change_matrix",
    "rehearsal/test_documents",
    "rehearsal/test_living_rehearsal",
    "rehearsal/test_whole_rehearsal",
    "aws/test_security_review",
    "operations/test_upgrade",
    "storm/test_launcher",
    "storm/test_command",
    "emulator/test_stack_protection",
    "rehearsal/test_board",
    "storm/test_collective",
)
"""The files whose tests take half a minute and more, the longest first."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deals the longest files to the workers, of which each gets a run of neighbours (`worksteal`)
    and begins with the first: else one ends with such a test while the others have nothing left.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = f"{item.path.parent.name}/{item.path.stem}"
        files.setdefault(name, []).append(item)
    long = [files.pop(name) for name in LONGEST if name in files]
    short = [item for file in files.values() for item in file]
    total, items[:] = len(items), []
    for worker in range(workers):
        heads = [item for file in long[worker::workers] for item in file]
        rest = max(0, (total - len(items)) // (workers - worker) - len(heads))
        items += heads + short[:rest]
        del short[:rest]


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


PROCESSOR = pytest.StashKey[dict[str, float]]()
"""By test, the seconds of processor of its worker and of every process that it waited for."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measures a test, with its fixtures. A process that outlives its parent counts nowhere."""
    began = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        spent = item.config.stash.setdefault(PROCESSOR, {})
        spent[item.nodeid] = sum(os.times()[:4]) - began


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["processor"] = session.config.stash.get(PROCESSOR, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(PROCESSOR, {}).update(node.workeroutput.get("processor", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tells the processor's seconds by room, and those of the twenty tests that took the most."""
    spent = config.stash.get(PROCESSOR, {})
    if len(spent) <= 20:
        return
    rooms: dict[str, float] = {}
    for test, seconds in spent.items():
        room = test.split("/")[1]
        rooms[room] = rooms.get(room, 0) + seconds
    terminalreporter.section(f"{sum(spent.values()) / 60:.1f} minutes of processor")
    for name, seconds in sorted(rooms.items(), key=lambda room: -room[1]):
        terminalreporter.line(f"{seconds:7.1f} s  {name}")
    terminalreporter.section("the twenty tests that took the most of it")
    for name, seconds in sorted(spent.items(), key=lambda test: -test[1])[:20]:
        terminalreporter.line(f"{seconds:7.1f} s  {name}")
