"""Finds the packages that a program's imports need and the image lacks, before any is installed.

Which package a module comes from is pyimport2pkg's data, by downloads; which release fits the
image's Python and Paddle is uv's answer. What the repository itself declares comes first. They are
written into the job file, which keeps every other character as it is.
"""

import importlib.metadata
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from paddle_node.requirements import install

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.program_archive import LOCKS
from paddle_aws.operations.errors import BadInput, Unreachable
from paddle_aws.operations.images.interpreter import PROJECT, index_settings

NUMPY_2 = "2024-06-16"
"""The day of numpy 2.0: packages that were compiled before fail on import beside it."""
SOURCE_ALONE = "it has no wheel"
"""The last of the lines is built from its source, which only the installation may run."""
LEFT = {"pkg_resources": "setuptools<81"}
"""Modules that a newer release of an installed package lacks (setuptools' history, v82)."""


@dataclass(frozen=True)
class FoundRequirements:
    """The requirements to add, and remarks on those that cannot be had as they were declared."""

    lines: tuple[str, ...]
    remarks: tuple[str, ...]


def find_packages(
    job: TrainingJob,
    root: Path,
    modules: Iterable[str],
    python: Path,
    optional: Collection[str] = (),
) -> FoundRequirements:
    """Returns what the job has to require besides what it does, for `modules` that the image lacks,
    and for those of `optional` that the repository declares.

    `root`: the program's folder. `python`: the environment of the job's Paddle. Raises Unreachable
    if no package index answers.
    """
    resolver = _Resolver(job, python)
    given = list(job.program.requirements)
    if isinstance(brought := resolver.choose(given), str):
        given = [line for line in given if resolver.choose([line]) != SOURCE_ALONE]
        brought = resolver.choose(given)
    there = brought if isinstance(brought, dict) else {}
    named = {name_of(line) for line in job.program.requirements}
    there |= dict.fromkeys(named, "")
    declared, remarks, lines = _declared(root), list[str](), dict[str, str]()
    others = dict[str, list[str]]()
    for module in (*modules, *optional):
        # pywin32 has a module `timer`, and so has the package of that name.
        names = [*_candidates(module), name_of(module)]
        if module in optional and not any(name in declared for name in names):
            continue
        if module in LEFT:
            lines["setuptools"] = LEFT[module]
            continue
        if not any(name in there for name in names):
            name = next((name for name in names if name in declared), names[0])
            lines[name], others[name] = declared.get(name, name), names
    # The image has these, in releases that the program may not take.
    for name in declared.keys() & resolver.installed - lines.keys():
        if declared[name] != name:
            lines[name] = declared[name]
    # Of a package that the job names, its own line counts.
    lines = {name: line for name, line in lines.items() if name not in named}
    built = dict[str, str]()
    if isinstance(chosen := resolver.choose([*given, *lines.values()]), str):
        for name, line in list(lines.items()):
            if isinstance(chosen := resolver.choose([*given, line]), dict):
                continue
            del lines[name]
            tried = [] if name in resolver.installed else others.get(name, [name])
            if chosen == SOURCE_ALONE:  # Another release may have a wheel.
                tried = [name] if tried and name != line else []
            if re.match(r"numpy[=<~]=?1\.", line):  # Its programs meet what numpy 2 removed.
                lines["numpy"] = "numpy<2"
            available = (
                other for other in tried if isinstance(resolver.choose([*given, other]), dict)
            )
            if other := next(available, None):
                lines[other] = other
            elif chosen == SOURCE_ALONE and name not in resolver.installed:
                built[name] = line
                continue
            if other in (None, name) or name in declared:
                remarks.append(f"{line} cannot be had: {chosen}")
            if tried and not other:
                remarks.append(f"no index has {name} for this Python: name the package yourself")
        chosen = resolver.choose([*given, *lines.values()])
    if isinstance(chosen, str):
        remarks.append(f"{', '.join(lines.values())} do not fit together: {chosen}")
        lines = {name: name for name in lines}
    else:
        own = resolver.installed - chosen.keys()  # The image's own fits.
        lines = {name: line for name, line in lines.items() if name not in own}
        if "numpy" not in lines.keys() | named and resolver.needs_numpy_1(chosen):
            lines["numpy"] = "numpy<2"
    return FoundRequirements(tuple(sorted((lines | built).values())), tuple(remarks))


class _Resolver:
    """uv, asked about the image's environment within its limits; installs nothing."""

    def __init__(self, job: TrainingJob, python: Path) -> None:
        self._limits = (PROJECT / LOCKS[job.chosen_paddle]).with_suffix(".in")
        self._python = python / "python"
        self._environ = {**os.environ, **index_settings(job.program.index)}
        folders = [str(folder) for folder in python.parent.glob("lib/*/site-packages")]
        found = importlib.metadata.distributions(path=folders)
        self.installed = {name_of(package.metadata["Name"]) for package in found}

    def choose(self, lines: Sequence[str]) -> dict[str, str] | str:
        """Returns what would be installed, by version; or why not. Raises Unreachable."""
        if not lines:
            return {}
        words = ("install", "--dry-run", "--output-format", "json", "--python", self._python)
        limits: list[str | Path] = ["--requirements", self._limits, "--constraints", self._limits]
        code, output, messages = self._run([*words, *limits, "--only-binary", ":all:", *lines])
        if code == 0:
            changes = json.loads(output)["changes"]
            return {c["name"]: c["version"] for c in changes if c["action"] == "installed"}
        if "Failed to fetch" in messages or "error sending request" in messages:
            raise Unreachable("no package index answers")
        if re.search(rf"\b{name_of(lines[-1])}(==\S+)? ha(s|ve) no usable wheels", messages):
            return SOURCE_ALONE
        cause = re.search(r"cause: ((?:.+\n?)(?:^ {9}.*\n?)*)", messages, re.MULTILINE)
        return " ".join((cause[1] if cause else messages).split()).partition(" and you require")[0]

    def needs_numpy_1(self, chosen: Mapping[str, str]) -> bool:
        """Returns whether one of these was compiled for numpy 1 and imports it."""
        pins = [f"{name}=={version}" for name, version in chosen.items() if name != "numpy"]
        words = ("compile", "-", "--quiet", "--no-header", "--python", self._python)
        source = "\n".join(pins).encode()
        _, annotated, _ = self._run([*words, "--annotation-style", "line"], source)
        asks = re.search(r"^numpy==2\S*\s+# via (.*)$", annotated, re.MULTILINE)
        _, lock, _ = self._run([*words, "--no-deps", "--format", "pylock.toml"], source)
        (folder,) = self._python.parents[1].glob("lib/python3*")
        tag = f"cp{folder.name.removeprefix('python').replace('.', '')}"
        if asks is None:
            return False
        for package in tomllib.loads(lock).get("packages", ()):
            fits = re.compile(rf".*-({tag}|abi3)-[^/]*")
            wheels = [w for w in package.get("wheels", ()) if fits.fullmatch(w["url"])]
            times = [str(wheel.get("upload-time", "")) for wheel in wheels]
            if package["name"] in asks[1] and times and all(times) and max(times)[:10] < NUMPY_2:
                return True
        return False

    def _run(self, words: Sequence[str | Path], source: bytes = b"") -> tuple[int, str, str]:
        return install.run(words, lambda text: None, self._environ, source)


def _candidates(module: str) -> list[str]:
    from pyimport2pkg.database import MappingDatabase
    from pyimport2pkg.mapper import Mapper
    from pyimport2pkg.models import ImportInfo

    found = Mapper(MappingDatabase()).map_import(ImportInfo(module, module)).candidates
    return [name_of(candidate.package_name) for candidate in found] or [name_of(module)]


def _declared(root: Path) -> dict[str, str]:
    """Returns what a repository says that it requires, by name."""
    lines = [line for line in _lines(root) if re.match(r"[A-Za-z0-9]", line)]
    # An address, or a marker for other systems, is left to the person.
    return {name_of(line): line for line in lines if "@" not in line and ";" not in line}


def _lines(root: Path) -> Iterator[str]:
    for file in [*root.glob("requirements*.txt"), *root.glob("requirements/*.txt")]:
        for line in file.read_text(errors="replace").splitlines():
            yield re.sub(r"\s", "", line.partition("#")[0])
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text()).get("project", {})
    except (OSError, ValueError):
        return
    yield from (re.sub(r"\s", "", line) for line in project.get("dependencies", ()))


def name_of(requirement: str) -> str:
    """Returns the package's name alone, as indexes compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def show_requirements(requirements: list[str]) -> str:
    """Returns the list as YAML on one line."""
    text = yaml.safe_dump(requirements, default_flow_style=True, width=10_000).strip()
    return f"requirements: {text}"


def write_requirements(file: Path, requirements: list[str]) -> None:
    """Sets the list in the job file. Raises BadInput if that is no mapping in YAML, or names a file
    of requirements.
    """
    text = file.read_text()
    root, line = yaml.compose(text), show_requirements(requirements)
    if not isinstance(root, yaml.MappingNode):
        raise BadInput(f"{file} is no mapping: write {line} below program:")
    nodes = {key.value: (key, value) for key, value in root.value}
    if "program" not in nodes:
        file.write_text(f"{text.rstrip()}\nprogram: {{{line}}}\n")
        return
    _, program = nodes["program"]
    if not isinstance(program, yaml.MappingNode) or not program.value:
        raise BadInput(f"{file}: program has no settings: write program: {{{line}}}")
    settings = {key.value: (key, value) for key, value in program.value}
    if "requirements" in settings:
        key, value = settings["requirements"]
        if isinstance(value, yaml.ScalarNode):
            raise BadInput(
                f"{file}: program.requirements is the file {value.value}: add what is missing there"
            )
        start, end = key.start_mark.index, value.end_mark.index
        # A block's end is where the next key begins.
        tail = text[start:end]
        end -= len(tail) - len(tail.rstrip())
    else:
        first, _ = program.value[0]
        start = end = first.start_mark.index
        line += ", " if program.flow_style else "\n" + " " * first.start_mark.column
    file.write_text(text[:start] + line + text[end:])
