"""docs/exit-codes.md is the contract's table, in full."""

import re
from pathlib import Path

from paddle_node.contract import FAIL_JOB, ExitCode

PAGE = Path(__file__).parents[2] / "docs/exit-codes.md"


def test_the_page_lists_every_code_with_its_name_and_what_the_job_does():
    rows = re.findall(
        r"^\| (\d+) \| `(\w+)` \| (fails|may retry|succeeds) \|", PAGE.read_text(), re.M
    )
    expected = [
        (
            str(code.value),
            code.name,
            "succeeds" if code == 0 else "fails" if code in FAIL_JOB else "may retry",
        )
        for code in sorted(ExitCode)
    ]
    assert rows == expected
