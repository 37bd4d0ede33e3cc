"""Pods and tools give one answer to whether a saved pass is valid, and which is the newest."""

from collections.abc import Callable
from pathlib import Path

import pytest
from paddle_node.volume import passes
from paddle_node.volume.job_folder import JobFolder


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path / "job")


def save(job: JobFolder, attempt: int, number: int) -> Path:
    folder = job.attempt("run", attempt) / f"pass-{number:05d}"
    (folder / "model").mkdir(parents=True)
    (folder / "model/part-0").write_bytes(b"weights")
    passes.seal(folder, {"pass": number, "attempt": attempt, "data": "", "program": ""})
    passes.link_newest(job, folder.name)
    return folder


def listed(job: JobFolder) -> list[passes.ListedFolder]:
    sizes = {
        path.relative_to(job.output).as_posix(): path.stat().st_size
        for path in job.output.rglob("*")
        if path.is_file() and not any(above.is_symlink() for above in path.parents)
    }
    return passes.read_listing(sizes, lambda name: (job.output / name).read_bytes())


def cut(folder: Path) -> None:
    (folder / "model/part-0").write_bytes(b"w")


def remove_file(folder: Path) -> None:
    (folder / "model/part-0").unlink()


def remove_record(folder: Path) -> None:
    (folder / passes.DONE).unlink()


def change_record(folder: Path) -> None:
    record = (folder / passes.DONE).read_text()
    (folder / passes.DONE).write_text(record.replace('"bytes": 7', '"bytes": 1'))
    cut(folder)


@pytest.mark.parametrize(
    "spoil", [lambda folder: None, cut, remove_file, remove_record, change_record]
)
def test_a_pass_is_valid_for_pods_and_tools_alike(
    job: JobFolder, spoil: Callable[[Path], None]
) -> None:
    folder = save(job, 1, 0)
    spoil(folder)
    [pass_] = listed(job)
    assert pass_.complete == (passes.find_fault(folder) is None)


def test_the_newest_is_the_same_for_pods_and_tools_and_what_was_given_up_is_none(
    job: JobFolder,
) -> None:
    for attempt, number in ((2, 1), (10, 0), (9, 7), (2, 10)):
        save(job, attempt, number)
    (job.attempt("run", 11) / "pass-00009").mkdir(parents=True)
    passes.discard_incomplete(job)
    names = ["run-10/pass-00000", "run-9/pass-00007", "run-2/pass-00010", "run-2/pass-00001"]
    assert [pass_.name for pass_ in passes.read_newest_first(job)] == [
        f"attempts/{n}" for n in names
    ]
    assert [pass_.folder for pass_ in listed(job)] == [f"attempts/{name}" for name in names]


def test_a_pass_of_paddle_0x_has_an_empty_record(job: JobFolder) -> None:
    job.pass_dir(3).mkdir(parents=True)
    (job.pass_dir(3) / "parameters").write_bytes(b"weights")
    assert [pass_.complete for pass_ in listed(job)] == [False]
    job.done(3).touch()
    assert [(pass_.complete, pass_.attempt) for pass_ in listed(job)] == [(True, 0)]
