"""Writes program.requirements into a job file, and leaves every other character as it is."""

from pathlib import Path

import yaml

from paddle_aws.operations.errors import BadInput


def show(requirements: list[str]) -> str:
    """Returns the list as YAML on one line."""
    text = yaml.safe_dump(requirements, default_flow_style=True, width=10_000).strip()
    return f"requirements: {text}"


def write(file: Path, requirements: list[str]) -> None:
    """Sets the list in the job file. Raises BadInput if that is no mapping in YAML, or names a file
    of requirements.
    """
    text = file.read_text()
    root, line = yaml.compose(text), show(requirements)
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
