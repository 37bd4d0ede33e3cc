"""Counts how the project grows: `python tests/growth.py [REVISION]` compares this clone's commit
with a revision, else with the last tag. It refuses nothing.

Lines are those of *.py and *.sh, of tests and benchmarks apart. A fork is a place that decides by
itself which way a job trains, instead of asking its `way`; a reader one that takes steps from a
line or a file.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FORK = r"trainers_join|reports_passes|command is (not )?None|runtime (not )?(==|!=|in |is )"
WAY = r"\bway\.[a-z]+"
READER = r"read_step\b|LineMetrics|LineReader|Matches\(|step_metrics|\.steps\("
DEEP = ("paddle_aws", "trainer_image", "tests", "examples")
"""Folders whose own folders are the rooms."""


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def room(file: str) -> str:
    parts = file.removeprefix("trainer_image/paddle_node/").split("/")
    if file.startswith("trainer_image/paddle_node/"):
        parts = ["paddle_node", *parts]
    depth = 2 if parts[0] in (*DEEP, "paddle_node") else 1
    return "/".join(parts[:-1][:depth]) or "."


def lines(revision: str, pattern: str = "") -> Counter[str]:
    """Returns by file how many lines of a revision match."""
    found = git("grep", "-cE", "-e", pattern, revision, "--", "*.py", "*.sh")
    pairs = (line.partition(":")[2].rpartition(":") for line in found)
    return Counter({file: int(count) for file, _, count in pairs})


def by_room(counted: Counter[str]) -> Counter[str]:
    rooms: Counter[str] = Counter()
    for file, count in counted.items():
        rooms[room(file)] += count
    return rooms


def is_test(name: str) -> bool:
    return bool(re.match("tests|benchmarks", name))


def main() -> None:
    since = sys.argv[1] if sys.argv[1:] else "".join(git("describe", "--tags", "--abbrev=0"))
    before, now = (
        by_room(lines(revision)) if revision else Counter() for revision in (since, "HEAD")
    )
    print(f"lines by room, {since or 'no tag'} -> HEAD")
    for tests in (False, True):
        names = sorted(name for name in before | now if is_test(name) == tests)
        for name in names:
            print(f"  {name:34}{before[name]:8,}{now[name]:8,}{now[name] - before[name]:+8,}")
        old, new = (sum(one[name] for name in names) for one in (before, now))
        print(f"  {'tests' if tests else 'product':34}{old:8,}{new:8,}{new - old:+8,}")
    for name, pattern in (("forks", FORK), ("asked of `way`", WAY), ("readers of steps", READER)):
        counts = []
        for revision in filter(None, (since, "HEAD")):
            found = lines(revision, pattern)
            product = {file: count for file, count in found.items() if not is_test(file)}
            counts.append(f"{sum(product.values())} lines in {len(product)} files")
        print(f"{name}: {' -> '.join(counts)}")


if __name__ == "__main__":
    main()
