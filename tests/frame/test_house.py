"""Rooms import each other only along the arrows of docs/architecture.md, and what is pinned stays
pinned.
"""

import ast
import functools
import json
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]

MAY_IMPORT: dict[str, list[str]] = yaml.safe_load(
    Path(__file__).with_name("rooms.yaml").read_text()
)
WATCHED = {"app", "paddle_node", "aws_cdk", "cdk8s", "constructs", "cdk_nag"} | {
    room.partition("/")[0] for room in MAY_IMPORT
}


@functools.cache
def imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] in WATCHED}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_arrows(room: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in (ROOT / room).rglob("*.py")
        for name in sorted(imports(file))
        if not any(
            name == allowed or name.startswith(f"{allowed}.") for allowed in MAY_IMPORT[room]
        )
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["trainer_image/paddle_node", "paddle_aws", "k8s_charts"])
def test_no_modules_import_each_other(package: str) -> None:
    """Neither at their top, nor in a function, nor for types alone."""
    folder = ROOT / package
    modules = {
        file.relative_to(folder.parent).as_posix().replace("/", "."): file
        for file in folder.rglob("*.py")
    }
    modules = {
        name.removesuffix(".py").removesuffix(".__init__"): file for name, file in modules.items()
    }
    arrows = {
        name: {
            imported if imported in modules else imported.rpartition(".")[0]
            for imported in imports(file)
        }
        for name, file in modules.items()
    }
    while leaves := [name for name, targets in arrows.items() if not targets & arrows.keys()]:
        for name in leaves:
            del arrows[name]
    assert sorted(arrows) == []


def test_no_circle_of_files() -> None:
    """Not even one that imports inside functions, or for types alone, hold open."""
    files = {
        ".".join(file.relative_to(home).with_suffix("").parts).removesuffix(".__init__"): file
        for home, room in (
            (ROOT, "constructs_lib"),
            (ROOT, "k8s_charts"),
            (ROOT, "paddle_aws"),
            (ROOT, "paddle_settings"),
            (ROOT / "trainer_image", "paddle_node"),
        )
        for file in (home / room).rglob("*.py")
    }
    graph = {
        name: {
            imported if imported in files else imported.rpartition(".")[0]
            for imported in imports(file)
        }
        - {name}
        for name, file in files.items()
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    "room",
    [
        "constructs_lib",
        "k8s_charts",
        "paddle_aws/operations",
        "paddle_aws/operations/account",
        "paddle_aws/operations/jobs",
        "paddle_aws/rehearsal",
        "trainer_image/paddle_node",
    ],
)
def test_no_circle_of_folders(room: str) -> None:
    """Inside a room, a folder or a file at its top imports only what lies below it."""
    home = ROOT / room
    package = room.removeprefix("trainer_image/").replace("/", ".")
    graph: dict[str, set[str]] = {}
    for file in home.rglob("*.py"):
        part = file.relative_to(home).with_suffix("").parts[0]
        if part != "__init__":
            graph.setdefault(part, set()).update(
                name.removeprefix(f"{package}.").split(".")[0]
                for name in imports(file)
                if name.startswith(f"{package}.")
            )
    TopologicalSorter({part: parts - {part} for part, parts in graph.items()}).prepare()


def test_constructs_know_no_environment() -> None:
    """Only its props configure a construct."""
    for file in (ROOT / "constructs_lib").rglob("*.py"):
        assert not re.search(r"^\s*(import|from) (os|yaml)\b", file.read_text(), re.M), file


LOCKS = [
    file
    for folder in ("requirements", "trainer_image", "paddle_aws/rehearsal/*")
    for file in sorted(ROOT.glob(f"{folder}/*.lock"))
]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: p.name)
def test_locks_pin_with_hashes_and_name_no_index(lock: Path) -> None:
    text = lock.read_text()
    assert not re.search(r"^\s*(--(index|extra-index|find-links|trusted-host)|.*://)", text, re.M)
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==\S+ \\\n    --hash=sha256:", text, re.M)
    assert len(pins) == len(re.findall(r"^[A-Za-z0-9]", text, re.M)) > 0


def test_npm_lock_pins_and_names_no_registry() -> None:
    package = json.loads((ROOT / "package.json").read_text())
    lock = json.loads((ROOT / "package-lock.json").read_text())
    assert (
        package["dependencies"]["aws-cdk"] == "2.1148.1"
    )  # npm's `latest` tag is older than the library's schema
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    # A bundled package lies inside its parent's archive, which has the hash.
    assert all("integrity" in entry or entry.get("inBundle") for entry in packages.values())
    assert not any("resolved" in entry for entry in packages.values())
