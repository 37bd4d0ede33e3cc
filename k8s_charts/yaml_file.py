"""YAML settings read strictly: a mapping at the top, no key twice, and every fault is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from k8s_charts.errors import JobError

_KINDS = {type(None): "nothing", list: "a list", str: "text"}


class _StrictLoader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys without a word; a settings file must not lose one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                shown = (key_node.value or "empty") if isinstance(key_node, yaml.ScalarNode) else key
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {shown} is no text: put it in quotes", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice: keep one", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load(path: Path) -> dict[str, Any]:
    """The file's mapping. Raises JobError when it is absent, unreadable, no YAML or no mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError(f"{path} does not exist: give the path of a job file, such as job.yaml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path} cannot be read as UTF-8 text: {error}") from None
    try:
        found = yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        where = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise JobError(f"{path}{where}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise JobError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise JobError(f"{path} is nested too deeply: a job file is a mapping of settings") from None
    if not isinstance(found, dict):
        raise JobError(f"{path} holds {_KINDS.get(type(found), 'one value')}: a job file is a mapping of settings")
    return found
