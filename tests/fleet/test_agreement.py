"""One value for all. The session is a stand-in: threads of one process meet at a barrier, nothing is sent."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from paddle_node.contract import JobFolder
from paddle_node.training.agreement import Agreement
from paddle_node.training.passes import Identity


class Sessions:
    """The places of N trainers."""

    def __init__(self, trainers: int) -> None:
        self.trainers, self.attempt = trainers, 1
        self._meeting = threading.Barrier(trainers, timeout=60)
        self._values: dict[str, dict[int, object]] = {}

    def of(self, trainer_id: int):
        everyone = self

        class Session:
            trainers, attempt = everyone.trainers, everyone.attempt

            def gather(self, name, value):
                everyone._values.setdefault(name, {})[trainer_id] = value
                everyone._meeting.wait()
                return [everyone._values[name][other] for other in range(everyone.trainers)]

            def barrier(self, name):
                self.gather(name, None)

        session = Session()
        session.trainer_id = trainer_id
        return session


@pytest.fixture
def job(tmp_path: Path):
    return JobFolder(tmp_path / "job"), Identity("data", "program")


def reach(folder, identity, shards: list[list[str]], attempt: int = 1) -> tuple[list, list[int]]:
    sessions, counted = Sessions(len(shards)), []

    def trainer(number: int):
        def count():
            counted.append(number)
            return shards[number]

        return Agreement(folder, identity, folder.root / f"pod-{number}", attempt, "words").reach(
            sessions.of(number), count, lambda all_counts: sorted(w for c in all_counts for w in c)
        )

    with ThreadPoolExecutor(len(shards)) as pool:
        return list(pool.map(trainer, range(len(shards)))), counted


def test_all_trainers_and_a_pserver_get_the_merged_value(job):
    folder, identity = job
    with ThreadPoolExecutor(1) as pserver:
        waiting = pserver.submit(Agreement(folder, identity, folder.root / "pod-1", 1, "words").wait)
        values, counted = reach(folder, identity, [["b"], ["c"], ["a"]])
        assert values == [["a", "b", "c"]] * 3 and sorted(counted) == [0, 1, 2]
        assert waiting.result(10) == ["a", "b", "c"]
    left = [file.name for file in (folder.output / "agreed").iterdir()]
    assert len(left) == 1 and left[0].startswith("words-") and left[0].endswith(".json")


def test_what_was_agreed_before_is_read_and_nobody_counts_again(job):
    reach(*job, [["b"], ["a"]])
    assert reach(*job, [["x"], ["y"]]) == ([["a", "b"]] * 2, [])


@pytest.mark.parametrize("other", [Identity("other", "program"), Identity("data", "other")])
def test_other_data_or_another_program_is_counted_anew(job, other: Identity):
    folder, identity = job
    reach(folder, identity, [["b"], ["a"]])
    assert reach(folder, other, [["x"], ["y"]])[0] == [["x", "y"]] * 2


def test_a_pserver_waits_for_the_trainer_of_its_own_attempt(job):
    folder, identity = job
    reach(folder, identity, [["b"], ["a"]])
    with ThreadPoolExecutor(1) as pserver:
        waiting = pserver.submit(Agreement(folder, identity, folder.root / "pod-0", 2, "words").wait)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        reach(folder, identity, [["x"], ["y"]], attempt=2)
        assert waiting.result(10) == ["a", "b"]
