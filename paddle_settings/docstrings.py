"""The docstring below each setting, for the schemas.

pydantic's `use_attribute_docstrings` reads every class's source whenever it is imported, a third of
the import's time; few programs ask for a schema.
"""

import ast
import functools
import inspect
import itertools
import sys

from pydantic import BaseModel


def descriptions(group: type[BaseModel]) -> dict[str, str]:
    """Returns the docstrings below a group's settings, each from the class that annotates it last;
    none where the source is missing.
    """
    described: dict[str, str] = {}
    for base in reversed(group.__mro__):
        settings = inspect.get_annotations(base).keys() & group.model_fields.keys()
        written = _docstrings(base.__module__).get(base.__qualname__, {}) if settings else {}
        for name in settings:
            described.pop(name, None)
            if name in written:
                described[name] = written[name]
    return described


@functools.cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Returns the docstrings below the variables of each class of a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {
        part.name: {
            variable.target.id: inspect.cleandoc(text.value.value)
            for variable, text in itertools.pairwise(part.body)
            if isinstance(variable, ast.AnnAssign)
            and isinstance(variable.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for part in tree.body
        if isinstance(part, ast.ClassDef)
    }
