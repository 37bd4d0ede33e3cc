"""Names the two sides of a conflict that pip's resolver has found, and what helps; and pip's other
faults of requirements.
"""

import re
import textwrap
from dataclasses import dataclass

from paddle_node.requirements.install import CONFLICT

_REQUIREMENT = r"([A-Za-z0-9][\w.-]*)(?:\[[^\]\n]*\])?[ ]*([^;\n]*)[^\n]*"
_CHAIN = re.compile(
    r"^(?:Collecting ([\w.-]+)|Processing \S*/([\w.]+)-\d).*"
    r"\(from (?:[^()]*->)?([^()>]+?)(?:->-r \S+ \(line \d+\))?\)$",
    re.MULTILINE,
)
"""The program's requirement that brought a package along."""
_BUILDER = re.compile(r"^#\d+ (\d+\.\d+ )?", re.MULTILINE)
"""What docker puts before each line of a build."""
_LINE = re.compile(
    rf"^[ ]+(?:The user requested (\(constraint\) )?|(\S+) (\S+) depends on ){_REQUIREMENT}$",
    re.MULTILINE,
)
_OUTPUT = re.compile(
    r"^ *× (.*)\n(?: *│.*\n)* *╰─> \[\d+ lines? of output\]\n((?: {6}.*\n)*)", re.MULTILINE
)
"""What a process that pip started has said: pip indents every line of it."""
WHEELS_ALONE = "with program.index.secret only wheels are installed"
MOST_NAMED = 3
"""Packages that one sentence names at most: pip lists each version that it tried."""


@dataclass(frozen=True)
class _Demand:
    asker: str
    """A package; empty: the user, or the image."""
    release: str
    versions: str
    limit: bool
    """Whether the image's Paddle asks: Paddle itself or, without a release, a constraint of the
    image.
    """


def explain_conflict(output: str, paddle: str) -> str:
    """Returns who asks for which versions of the package that pip's `output` is about, and the
    remedy; empty if it tells of no conflict. `paddle`: the image's Paddle.
    """
    before, separator, conflict = _BUILDER.sub("", output).partition(CONFLICT)
    if not separator:
        return ""
    demands: dict[str, dict[str, _Demand]] = {}
    for limit, asker, release, package, versions in _LINE.findall(
        conflict.partition("\nERROR: ")[0]
    ):
        of_paddle = bool(limit) or asker.startswith("paddlepaddle")
        demand = _Demand("" if of_paddle else asker, release, versions.replace(" ", ""), of_paddle)
        if demand.versions and not package.startswith("paddlepaddle"):
            # pip lists each version of an asker that it tried: the first is the newest.
            by_asker = demands.setdefault(re.sub(r"[-_.]+", "-", package).lower(), {})
            by_asker.setdefault("the image" if limit else asker, demand)
    roots = {
        (by_name or file).replace("_", "-"): root for by_name, file, root in _CHAIN.findall(before)
    }
    for package, by_asker in demands.items():
        if len(by_asker) > 1:
            others = [demand for demand in by_asker.values() if not demand.limit][:MOST_NAMED]
            limits = [demand for demand in by_asker.values() if demand.limit]
            # Paddle's own ranges are wide: with two other askers it is no party of the conflict.
            hard = [demand for demand in limits if not demand.release]
            parties = others + (hard or ([] if len(others) > 1 else limits))
            strictest = parties[0].versions
            if all(re.fullmatch(r"<=?[^,]+", party.versions) for party in parties):
                return (
                    f"program.requirements has {package}{strictest}: pip finds no such package "
                    "for the image's Python"
                )
            sides = " and ".join(_describe(demand, package, paddle, roots) for demand in parties)
            return f"program.requirements do not fit together: {sides}; {_remedy(parties, package)}"
    return ""


def _describe(demand: _Demand, package: str, paddle: str, roots: dict[str, str]) -> str:
    if demand.limit:
        who = f"the image (Paddle {paddle})"
    elif demand.asker:
        root = roots.get(demand.asker, "")
        who = f"{demand.asker} {demand.release}" + (f" (for {root})" if root else "")
    else:
        who = "program.requirements"
    return f"{who} needs {package}{demand.versions}"


def _remedy(demands: list[_Demand], package: str) -> str:
    asker = next((demand.asker for demand in demands if demand.asker), "")
    if demands[-1].limit:
        return (
            f'ask for another version of {asker or package}, or set another `paddle`: "2.6", "3.3"'
        )
    if any(not demand.asker for demand in demands):
        return f"change or leave out {package} in program.requirements"
    return "ask for other versions of these in program.requirements"


def extract_pip_errors(errors: str) -> str:
    """Returns pip's own errors, without what a package says while it is built."""
    return _OUTPUT.sub(
        lambda match: (
            extract_pip_errors(textwrap.dedent(match[2]))
            if "build dependencies" in match[1]
            else ""
        ),
        errors,
    )


_PACKAGE = r"(?:Collecting |Processing (?:\S*/)?)([\w.-]+)"
_FAULTS = (
    (r"Retrying \(Retry", ""),  # The index is out of reach: that is no fault of theirs.
    (rf"(?s){_PACKAGE}.*{WHEELS_ALONE}",
     f"program.requirements bring {{0}}, which is no wheel: {WHEELS_ALONE}"),
    (r"ERROR: Cannot install ([^\n]+?) because these package versions have conflicting",
     "program.requirements has {0}, which do not fit together or the image"),
    (r"ERROR: (?:No matching distribution found for|Invalid requirement:) ([^\n]+)",
     "program.requirements has {0}: pip finds no such package for the image's Python"),
    (r"ERROR: THESE PACKAGES DO NOT MATCH THE HASHES[^\n]*\n +(\S+)",
     "program.requirements has {0}: the index has other bytes than its hash says"),
    (r"(?:ERROR|error): (?!Exception:)([^\n]+)",
     "program.requirements cannot be installed: pip says {0}"),
)  # fmt: skip


def explain_fault(errors: str) -> str:
    """Returns what is wrong with the requirements, by pip's errors; empty if they say nothing of
    it.
    """
    pip_errors, outputs = extract_pip_errors(errors), _OUTPUT.findall(errors)
    if outputs and not re.search(_FAULTS[0][0], pip_errors):
        package, *_ = [
            *re.findall(r"Failed building wheel for (\S+)", pip_errors),
            *re.findall(_PACKAGE, pip_errors),
            "a package",
        ]
        # The last line says that the output ends.
        *_, reason, _ = ["nothing", *filter(str.strip, outputs[0][1].splitlines())]
        return f"program.requirements bring {package}, whose build fails: {reason.strip()[:300]}"
    for pattern, says in _FAULTS:
        if match := re.search(pattern, pip_errors):
            return says.format(*match.groups())
    return ""


def last_line(errors: str) -> str:
    """Returns the last line of pip's errors, short."""
    return errors.strip().rpartition("\n")[2][:300]
