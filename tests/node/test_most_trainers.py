"""How many trainers a list of all of them in one variable has room for, and the sentence beyond."""

import re

import pytest
from paddle_node import environment, runtimes
from paddle_node.environment import Attempt
from paddle_node.failure import SettingError

pytestmark = pytest.mark.slow


def processes(runtime: str, trainers: int) -> tuple[runtimes.Process, ...]:
    job = {"JOB_NAME": "words", "TRAIN_CONFIG_DIR": "words", "CONF_PADDLE_GRADIENT_NUM": str(trainers), "POD_IP": "10.0.0.1"}
    node = environment.parse(job | {"JOB_COMPLETION_INDEX": "0", "PADDLE_NODE_RUN_ID": "run", "PADDLE_NODE_SERVICE": "words"})
    addresses = [f"10.100.{i // 250}.{i % 250}" for i in range(trainers)]
    return runtimes.by_name(runtime).processes(node, addresses, Attempt(1))


@pytest.mark.parametrize(("runtime", "what"), [
    ("fleet-ps", "PADDLE_PSERVERS_IP_PORT_LIST of the server"),
    ("collective", "PADDLE_TRAINER_ENDPOINTS of the trainer"),
    ("paddle-0.x", "an argument of the trainer"),
])  # fmt: skip
def test_six_thousand_five_hundred_are_told_of_each_other_and_more_are_refused_in_one_sentence(runtime: str, what: str) -> None:
    assert processes(runtime, 6_500)
    with pytest.raises(SettingError) as refusal:
        processes(runtime, 10_000)
    assert re.match(rf"{what} has 1\d{{5}} bytes: Linux starts no program with more than 131071, so a list", str(refusal.value))
