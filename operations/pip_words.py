"""What pip and apt-get say when a program's packages cannot be installed, as one sentence."""

from __future__ import annotations

import re

_WORDS = {
    r"Retrying \(Retry": None,
    r"ERROR: Cannot install (.+?) because these package versions have conflicting": (
        "program.requirements has {}, which does not fit the image's own packages: their versions stay as they are"
    ),
    r"ERROR: (?:No matching distribution found for|Invalid requirement:) (.+)": (
        "program.requirements has {}: pip finds no such package for the image's Python"
    ),
    r"(?:ERROR|error): (.+)": "program.requirements cannot be installed: pip says {}",
    r"E: (?:Unable to locate package|Package) \'?([^ \'\n]+)": "program.packages has {}: the image's Debian has no such package",
}


def refusal(said: str) -> str | None:
    """The sentence; None where the index was out of reach, or nothing that is known was said."""
    for pattern, words in _WORDS.items():
        if found := re.search(pattern, said):
            return words and words.format(found[1].strip()[:200])
    return None
