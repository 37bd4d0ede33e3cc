"""A folder of the volume that may not be listed is an error that names it: training does not begin
again, and nothing good is removed.
"""

import os
import re
import shutil

import pytest
from paddle_node.volume import passes

pytestmark = pytest.mark.slow
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""root without its right to ignore what a folder allows."""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="util-linux has setpriv")
def test_a_refused_listing_neither_starts_training_over_nor_lets_keep_passes_delete_the_good_pass(
    job,
):
    first = job(count=2, stand_in={"keep": 1})
    first.start()
    first.end_undisturbed()
    (kept,) = passes.read_newest_first(first.folder)
    second = job(count=2, run="run-2", stand_in={"passes": 3, "keep": 1})
    if os.geteuid() == 0:
        second.command = (*UNPRIVILEGED, *second.command)
    attempts = second.folder.output / "attempts"
    attempts.chmod(0o300)  # Files can still be made there.
    try:
        second.start()
        second.end_with(1, 1)
    finally:
        attempts.chmod(0o700)
    for index in (0, 1):
        assert re.search(
            "no attempt can begin: .*/job/output/attempts: Permission denied", second.log(index)
        )
    assert [one.name for one in passes.read_newest_first(second.folder)] == [kept.name]
    third = job(count=2, run="run-3", stand_in={"passes": 3, "keep": 1})
    third.start()
    third.end_undisturbed()
    assert f"training resumes after {kept.name}" in third.log(0)
