"""The pages below docs/reference/: settings from the schemas and commands from `--help` itself, so
that they cannot differ from what the program does. `UPDATE_GOLDEN=1 pytest tests/charts` writes
them.
"""

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.recipe import Recipe
from paddle_aws.operations.main import app
from paddle_aws.stacks.cluster_spec import ClusterSpec

DOCS = Path(__file__).parents[2] / "docs"
Schema = Mapping[str, Any]
FILES = {
    "job-settings.md": ("job.yaml", TrainingJob),
    "cluster-settings.md": ("cluster.yaml", ClusterSpec),
    "recipe-settings.md": ("a recipe", Recipe),
}


def groups_in(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    """Yields the name of each definition that a setting may hold, with the setting's path."""
    if "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2], path
    for choice in schema.get("anyOf", ()):
        yield from groups_in(choice, path)
    if isinstance(schema.get("items"), Mapping):
        yield from groups_in(schema["items"], path)
    named = "group" if path == "nodes" else "name"
    for below in (
        schema.get("additionalProperties"),
        *schema.get("patternProperties", {}).values(),
    ):
        if isinstance(below, Mapping):
            yield from groups_in(below, f"{path}.<{named}>")


class SettingsPage:
    """The page of a settings file: a table for its own settings, and one for each group's."""

    def __init__(self, file: str, schema: Schema) -> None:
        self.file, self.schema = file, schema
        self.definitions: Mapping[str, Schema] = schema.get("$defs", {})
        self.paths: dict[str, str] = {}
        self._find_groups(schema, "")

    def _find_groups(self, schema: Schema, prefix: str) -> None:
        for name, setting in schema.get("properties", {}).items():
            for kind, path in groups_in(setting, f"{prefix}{name}"):
                if "properties" in self.definitions[kind] and kind not in self.paths:
                    self.paths[kind] = path
                    self._find_groups(self.definitions[kind], f"{path}.")

    def _type(self, schema: Schema) -> str:
        """Returns a setting's type in words, with the values or the range that are allowed."""
        if "$ref" in schema:
            kind = schema["$ref"].rpartition("/")[2]
            if path := self.paths.get(kind):
                return f"[{path}](#{re.sub(r'[^a-z0-9_-]', '', path.lower())})"
            return self._type(self.definitions[kind])
        if "anyOf" in schema:
            names = [self._type(choice) for choice in schema["anyOf"]]
            return " or ".join(dict.fromkeys(name for name in names if name != "null"))
        if "enum" in schema:
            return ", ".join(dict.fromkeys(f"`{value}`" for value in schema["enum"]))
        if "const" in schema:
            return f"`{schema['const']}`"
        kind = str(schema.get("type", "any"))
        if kind == "array":
            return f"list of {self._type(schema.get('items', {}))}"
        if kind == "object":
            values = schema.get("additionalProperties")
            values = next(iter(schema.get("patternProperties", {}).values()), values)
            return f"mapping to {self._type(values) if isinstance(values, Mapping) else 'any'}"
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is not None and most is not None:
            return f"{kind}, {least} to {most}"
        if least is not None:
            return f"{kind}, {least} or more"
        return kind if most is None else f"{kind}, {most} or less"

    def _table(self, schema: Schema) -> Iterator[str]:
        yield "| setting | allowed | default | meaning |"
        yield "|---|---|---|---|"
        for name, setting in schema.get("properties", {}).items():
            default = "**required**" if name in schema.get("required", ()) else ""
            if "default" in setting and setting["default"] is not None:
                default = f"`{json.dumps(setting['default'])}`"
            meaning = setting.get("description")
            if meaning is None and "$ref" in setting:
                kind = setting["$ref"].rpartition("/")[2]
                meaning = self.definitions[kind].get("description")
            meaning = " ".join((meaning or "").split())
            if examples := setting.get("examples"):
                meaning += f" For example `{examples[0]}`."
            yield row(f"`{name}`", self._type(setting), default, meaning)

    def text(self) -> str:
        lines = [f"# Every setting of {self.file}", "", *self._table(self.schema)]
        for kind, path in self.paths.items():
            described = " ".join(self.definitions[kind].get("description", "").split())
            lines += ["", f"## `{path}`", "", described, "", *self._table(self.definitions[kind])]
        return "\n".join(lines) + "\n"


def row(*cells: str) -> str:
    """Returns a row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def command_lines(name: str, command: Any) -> Iterator[str]:
    """Yields what `--help` says of a command, and of the commands below it."""
    yield f"\n## `{name}`\n"
    text, *examples = (command.help or "").split("Example: ")
    yield text.strip()
    if examples:
        yield "\n```bash"
        yield from (" ".join(example.split()) for example in examples)
        yield "```"
    if below := getattr(command, "commands", None):
        for word, child in below.items():
            yield from command_lines(f"{name} {word}", child)
        return
    context = command.context_class(command, info_name=name, terminal_width=100)
    yield f"\n```text\n{command.get_usage(context)}\n```\n"
    yield "| option | meaning |"
    yield "|---|---|"
    for option, meaning in filter(None, (each.get_help_record(context) for each in command.params)):
        yield row(f"`{option}`", " ".join(meaning.split()))


def command_table() -> str:
    """Returns the commands by their groups, with the first sentence of each one's help."""
    lines = ["| command | |", "|---|---|"]
    of_group = ""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        group = getattr(command, "rich_help_panel", None) or of_group
        if group != of_group:
            lines.append(row(f"**{group}**", ""))
            of_group = group
        for each, help_text in (
            [(f"{name} {word}", child.help) for word, child in command.commands.items()]
            if hasattr(command, "commands")
            else [(name, command.help)]
        ):
            sentence = re.split(r"(?<=\.)\s", " ".join((help_text or "").split()))[0]
            lines.append(row(f"`{each}`", sentence))
    return "\n".join(lines)


def stable_classes() -> Iterator[type]:
    """Yields the classes that stability.md names, by package."""
    _, _, text = (DOCS / "stability.md").read_text(encoding="utf-8").partition("## Constructs, by")
    names = re.findall(r"`([\w.]+)`", text.split("\n##")[0])
    words = {word for name in names for word in name.split(".")}
    for package in ("constructs_lib", "k8s_charts", "paddle_aws.stacks"):
        there = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(there, f"{package}."):
            if not module.name.endswith("_handler"):  # What a Lambda function runs.
                for name, kind in vars(importlib.import_module(module.name)).items():
                    if inspect.isclass(kind) and kind.__module__ == module.name and name in words:
                        yield kind


def constructs_page() -> str:
    """Returns the page of the constructs and charts: mkdocstrings reads their docstrings."""
    return "# Constructs and charts\n" + "".join(
        f"\n::: {kind.__module__}.{kind.__name__}\n" for kind in stable_classes()
    )


def pages() -> dict[str, str]:
    """Returns the text of each page by its name below docs/reference/."""
    commands = ["# Every command and option"]
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        commands += command_lines(f"paddle-aws {name}", command)
    return {
        name: SettingsPage(file, spec.model_json_schema()).text()
        for name, (file, spec) in FILES.items()
    } | {"commands.md": "\n".join(commands) + "\n", "constructs.md": constructs_page()}
