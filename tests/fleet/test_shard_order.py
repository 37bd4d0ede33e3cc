from collections import Counter
from pathlib import Path

from paddle_node.training import shard
from paddle_node.training.shard import Shard


def shard_of(place: Path, *files: str) -> Shard:
    made = []
    for number, text in enumerate(files):
        made.append(place / f"part-{number:05d}")
        made[-1].write_text(text, newline="")
    return Shard("shard", made, None)


def test_records_are_lines_as_the_splitter_counts_them(tmp_path):
    records = list(shard_of(tmp_path, "a\r\n\nb\rc\n", "ü"))
    assert [record.text for record in records] == ["a", "", "b\rc", "ü"]
    assert [(record.file.name, record.number) for record in records][-2:] == [
        ("part-00000", 3),
        ("part-00001", 1),
    ]


def test_the_order_is_decided_by_seed_pass_and_trainer_alone(tmp_path):
    own = shard_of(tmp_path, "".join(f"{number}\n" for number in range(500)))
    first = [record.text for record in own.shuffle(1, 0, 0)]
    assert first == [record.text for record in own.shuffle(1, 0, 0)]
    assert Counter(first) == Counter(record.text for record in own)
    others = [
        [record.text for record in own.shuffle(*order)]
        for order in ((2, 0, 0), (1, 1, 0), (1, 0, 1))
    ]
    assert all(other != first for other in others)


def test_a_sorted_shard_of_many_windows_is_mixed_whatever_its_files(tmp_path, monkeypatch):
    """On data sorted by label, each window must have all labels in about the same proportions as
    the whole.
    """
    monkeypatch.setattr(shard, "WINDOW", 200)
    monkeypatch.setattr(shard, "STRETCH", 100)
    labels = "a" * 2000 + "b" * 2000
    for files in (1, 3):
        cut = [
            labels[number * 4000 // files : (number + 1) * 4000 // files] for number in range(files)
        ]
        own = shard_of(
            tmp_path, *("".join(f"{label} of some length\n" for label in text) for text in cut)
        )
        own.expected = 4000 * 64  # As if records were short compared with the stretches.
        order = [record.text[0] for record in own.shuffle(1, 0, 0)]
        assert Counter(order) == Counter(labels)
        for begin in range(0, 4000, 200):
            assert 30 <= order[begin : begin + 200].count("a") <= 170


def test_a_shard_larger_than_the_window_loses_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr(shard, "WINDOW", 7)
    for stretch in (1, 2, 3, 10, 1000):
        monkeypatch.setattr(shard, "STRETCH", stretch)
        for expected in (None, 54):
            own = shard_of(
                tmp_path, "".join(f"{number}\n" for number in range(50)), "", "\n50", "51\n\n"
            )
            own.expected = expected and expected * 64
            found = [record.text for record in own.shuffle(3)]
            assert Counter(found) == Counter([*map(str, range(52)), "", ""])
