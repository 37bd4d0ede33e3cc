"""docs/exit-codes.md has the contract's table, in full. `UPDATE_GOLDEN=1 pytest
tests/node/test_exit_codes.py` writes it.
"""

import inspect
import os
import re
from pathlib import Path

from paddle_node.contract import FAIL_JOB, ExitCode

PAGE = Path(__file__).parents[2] / "docs/exit-codes.md"
TABLE = re.compile(
    r"(?<=<!-- generated: tests/node/test_exit_codes.py -->\n).*?(?=<!-- end -->)", re.S
)


def table() -> str:
    meanings = re.findall(
        r'^    (\w+) = \d+\n    """(.*?)"""', inspect.getsource(ExitCode), re.M | re.S
    )
    assert [name for name, _ in meanings] == [code.name for code in sorted(ExitCode)]
    rows = ["| code | name | the Job | meaning, and what to do |", "|---|---|---|---|"]
    for name, meaning in meanings:
        code = ExitCode[name]
        job = "succeeds" if code == 0 else "fails" if code in FAIL_JOB else "may retry"
        rows.append(f"| {code.value} | `{name}` | {job} | {' '.join(meaning.split())} |")
    return "\n".join(rows) + "\n"


def test_the_page_lists_every_code_with_its_name_and_what_the_job_does():
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text()))
    assert TABLE.findall(PAGE.read_text()) == [table()]
