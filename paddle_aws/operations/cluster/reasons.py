"""Puts Kubernetes' messages about faults into plain words, by the rules of reasons.yaml."""

import re
from functools import cache
from pathlib import Path

import yaml


def list_sentences(kind: str, message: str, *, aws: bool, **facts: str) -> list[str]:
    """Returns the sentences of a kind's rules for a message, one for each distinct thing that a
    rule finds in it. `aws`: the cluster runs in AWS.
    """
    reasons = []
    for rule, sentence in _rules()[kind].items():
        text = sentence if isinstance(sentence, str) else sentence["aws" if aws else "elsewhere"]
        for match in re.finditer(rule, message, re.IGNORECASE | re.DOTALL):
            reasons.append(text.format(*map(shorten, match.groups("")), **facts))
    return list(dict.fromkeys(reasons))


def first_sentence(
    kind: str, message: str, otherwise: str, *, aws: bool = False, **facts: str
) -> str:
    """Returns the sentence of the first rule that fits, or `otherwise`."""
    return next(iter(list_sentences(kind, message, aws=aws, **facts)), otherwise)


@cache
def _rules() -> dict[str, dict[str, str | dict[str, str]]]:
    return dict(yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")))


def shorten(text: str, width: int = 240) -> str:
    """Returns one line of at most `width`, without what would move the cursor: a program may have
    written the text.
    """
    flat = "".join(filter(str.isprintable, " ".join(text.split())))
    return flat if len(flat) <= width else flat[: width - 1] + "…"
