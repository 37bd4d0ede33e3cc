"""What a client of NFS does, on which the code on the volume relies; and what it does not, which the code must not forget."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from nfs_machine import Volume, until


def look(folder: Path) -> None:
    any(folder.iterdir())


def test_nfs_a_name_that_was_not_there_stays_away_until_its_folder_is_opened(volume: Volume) -> None:
    assert not (volume.b / "record").exists()
    (volume.a / "record").write_text("1")
    assert not (volume.b / "record").exists()
    with pytest.raises(FileNotFoundError):
        (volume.b / "record").read_text()
    look(volume.b)
    assert (volume.b / "record").read_text() == "1"


def test_nfs_a_link_that_was_replaced_leads_to_the_old_place_until_its_folder_is_opened(volume: Volume) -> None:
    (volume.a / "link").symlink_to("old")
    assert (volume.b / "link").readlink().name == "old"
    (volume.a / "new link").symlink_to("new")
    (volume.a / "new link").replace(volume.a / "link")
    assert (volume.b / "link").readlink().name == "old"
    look(volume.b)
    assert (volume.b / "link").readlink().name == "new"


def test_nfs_a_name_is_created_once_though_the_other_client_remembers_that_it_was_not_there(volume: Volume) -> None:
    (volume.b / "draft").touch()
    assert not (volume.b / "record").exists()
    (volume.a / "record").touch()
    with pytest.raises(FileExistsError):
        os.link(volume.b / "draft", volume.b / "record")
    with pytest.raises(FileExistsError):
        (volume.b / "record").touch(exist_ok=False)


def test_nfs_a_small_file_replaced_is_read_whole_old_or_new_and_new_within_a_second(volume: Volume) -> None:
    contents = [str(number) * 20_000 for number in range(10)]
    (volume.a / "state").write_text(contents[0])
    for content in contents[1:]:
        (volume.b / "state").read_text()
        (volume.a / "draft").write_text(content)
        (volume.a / "draft").replace(volume.a / "state")
        assert until(lambda expected=content: _one_of(contents, (volume.b / "state").read_text()) == expected) < 1


def _one_of(contents: list[str], found: str) -> str:
    assert found in contents
    return found


def test_nfs_what_is_written_and_closed_is_read_by_the_next_who_opens_it(volume: Volume) -> None:
    for number in range(20):
        (volume.a / "state").write_text(str(number))
        assert (volume.b / "state").read_text() == str(number)
        time.sleep(0.01)
