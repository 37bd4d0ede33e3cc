"""What holds for every room's tests."""

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
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
WAITING = ("bootstrap", "node")
"""Rooms whose slow tests mostly wait, for pods that beat, die and come back."""
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
BUSY = min(WORKERS, (os.cpu_count() or 1) + 1)
"""How many workers run a test at once that needs the processor."""


def waits(item: pytest.Item) -> bool:
    return item.path.parent.name in WAITING


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deals the files to the workers, of which each begins with a run of neighbours (`worksteal`):
    to as many as there are processors those that need one, the longest first.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(f"{item.path.parent.name}/{item.path.stem}", []).append(item)
    names = [
        *(name for name in LONGEST if name in files),
        *(name for name in files if name not in LONGEST),
    ]
    busy = [files[name] for name in names if not waits(files[name][0])]
    rest = [item for name in names if waits(files[name][0]) for item in files[name]]
    share, items[:] = len(items) // WORKERS, []
    for worker in range(BUSY):
        own = [item for file in busy[worker::BUSY] for item in file]
        items += own[:share]
        rest += own[share:]
    items += rest


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
"""By test, the seconds of processor of its worker and of all processes below that."""


def processor_seconds() -> float:
    """Returns those of this process and of all below it, dead ones too. A process that outlives
    its parent is no longer below it.
    """
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
                ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    found = [os.getpid()]
    for process in found:
        found += children.get(process, [])
    return sum(ticks.get(process, 0) for process in found) / os.sysconf("SC_CLK_TCK")


@contextmanager
def processor(folder: Path) -> Iterator[None]:
    """Takes one of the machine's processors, so that tests that need one do not slow each other."""
    while True:
        for number in range(BUSY):
            with (folder / f"processor-{number}").open("w") as lock, suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield
                return
        time.sleep(0.05)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measures a test, with its fixtures."""
    spent = item.config.stash.setdefault(PROCESSOR, {})
    workers = Path(item.config._tmp_path_factory.getbasetemp()).parent  # type: ignore[attr-defined]
    with nullcontext() if waits(item) or WORKERS == 1 else processor(workers):
        began = processor_seconds()
        try:
            return (yield)
        finally:
            spent[item.nodeid] = processor_seconds() - began


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["processor"] = session.config.stash.get(PROCESSOR, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    node.config.stash.setdefault(PROCESSOR, {}).update(output.get("processor", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tells the processor's seconds by room, and those of the twenty tests that took the most."""
    spent = config.stash.get(PROCESSOR, {})
    if sum(spent.values()) < 60:
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
