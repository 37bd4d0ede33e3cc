"""Breaks one promise after another, and tells which break the tests notice:
`python tests/mutants.py [ROOM ...]`.

mutants.yaml has the edits. Each is made in a second work tree of the last commit, whose
environments are those of this one; then the part of `make test` that looks at the edited room runs
there, up to its first failure. Exit code 1: a break was missed, or an edit no longer applies.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
MUTANTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
ENVIRONMENTS = (*ROOT.glob(".venv*"), ROOT / "node_modules")


@contextmanager
def second_tree() -> Iterator[Path]:
    """Makes another work tree, with environments of hard links, and removes it again."""
    tree = ROOT / "dist" / "mutants"
    worktree = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*worktree, "remove", "--force", tree], capture_output=True, check=False)
    subprocess.run([*worktree, "add", "--quiet", "--force", "--detach", tree], check=True)
    try:
        for made in ENVIRONMENTS:
            subprocess.run(["cp", "--archive", "--link", made, tree / made.name], check=True)
        # What names the project's folder: an editable package's finder, and the programs.
        packages = (tree / ".venv").glob("lib/*/site-packages/__editable__*")
        for file in (*packages, *(tree / ".venv/bin").iterdir()):
            if file.is_file() and not file.is_symlink() and b"\0" not in file.read_bytes():
                text, mode = file.read_text(), file.stat().st_mode
                file.unlink()
                file.write_text(text.replace(str(ROOT), str(tree)))
                file.chmod(mode)
        for sample in ROOT.glob("examples/*/sample.*"):
            shutil.copy(sample, tree / sample.relative_to(ROOT))
        yield tree
    finally:
        subprocess.run([*worktree, "remove", "--force", tree], check=True)


def outcome(tree: Path, mutant: dict[str, str]) -> tuple[bool, str]:
    """Returns whether the tests noticed, and the first failure or what is wrong."""
    file = tree / mutant["file"]
    text = file.read_text() if file.exists() else ""
    if text.count(mutant["find"]) != 1:
        return False, f"{mutant['file']} has {mutant['find']!r} {text.count(mutant['find'])} times"
    file.write_text(text.replace(mutant["find"], mutant["put"]))
    try:
        command = [*("pytest", "-x", "-q", "-m", "not long"), *mutant["tests"].split()]
        environ = os.environ | {"PATH": f"{tree / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True)
    finally:
        file.write_text(text)
    failed = re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.M)
    return done.returncode == 1, failed[0] if failed else done.stdout[-300:] + done.stderr[-300:]


def main() -> int:
    rooms = {mutant["room"] for mutant in MUTANTS}
    if unknown := set(sys.argv[1:]) - rooms:
        print(f"ROOM is {', '.join(sorted(unknown))}: allowed are {', '.join(sorted(rooms))}")
        return 2
    chosen = [mutant for mutant in MUTANTS if mutant["room"] in (sys.argv[1:] or rooms)]
    missed = []
    with second_tree() as tree:
        for mutant in chosen:
            noticed, why = outcome(tree, mutant)
            print(f"{'caught' if noticed else 'MISSED'}  {mutant['room']}: {mutant['promise']}")
            print(f"        {why}", flush=True)
            if not noticed:
                missed.append(mutant["room"])
    print(
        f"{len(chosen) - len(missed)} of {len(chosen)} caught{'; missed: ' * bool(missed)}", *missed
    )
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
