"""Without a bucket, the data job reads links to the files that would be its objects."""

from pathlib import Path

import pytest

from k8s_charts.spec import TrainingJob
from paddle_aws.rehearsal.local_account import LocalAccount

ROWS = {
    ("one.tsv", "s3://b/sources/job/one.tsv"): ("one.tsv", {"one.tsv"}),
    ("one.tsv", "s3://b/other.tsv"): ("other.tsv", {"other.tsv"}),
    ("one.tsv", "s3://b/day/"): ("", {"one.tsv"}),
    ("one.tsv", "s3://b/day/*.tsv"): ("", {"one.tsv"}),
    ("one.tsv", "s3://b/day/*.gz"): ("", set()),
    ("day", "s3://b/day"): ("", {"a.tsv", "b.gz", "night/c.tsv"}),
    ("day", "s3://b/day/*.tsv"): ("", {"a.tsv", "night/c.tsv"}),
    ("day", "s3://b/d*/a.tsv"): ("", set()),
    ("day", "s3://b/*"): ("", {"a.tsv", "b.gz", "night/c.tsv"}),
}
"""By a file or folder and an address: the path that is read, and the links, as S3 takes both."""


@pytest.mark.parametrize(("given", "address"), ROWS)
def test_an_address_means_what_it_means_in_s3(tmp_path: Path, given: str, address: str) -> None:
    for name in ("one.tsv", "day/a.tsv", "day/b.gz", "day/night/c.tsv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    job = TrainingJob.model_validate({"name": "job", "trainers": 1, "data": {"source": "one.tsv"}})
    account = LocalAccount(job, tmp_path / "outputs.json", tmp_path / "image.json")
    path, links = ROWS[given, address]
    for _ in range(2):  # A kept volume has the links of the last rehearsal.
        read = account.upload(tmp_path / given, address, tmp_path / "links")
        assert read == tmp_path / "links" / path
        found = {
            entry.relative_to(tmp_path / "links").as_posix(): entry.read_text()
            for entry in (tmp_path / "links").rglob("*")
            if entry.is_file()
        }
        assert set(found) == links
        source = f"{given}/" if given == "day" else ""
        assert all(name in (f"{source}{link}", "one.tsv") for link, name in found.items())
