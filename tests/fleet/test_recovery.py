"""What remains of training when processes end in the middle of it. Real Paddle: about 15 s per
test.
"""

import json
import os
import signal
import time

import pytest
from training_job import HOLD

pytestmark = pytest.mark.slow
LISTENS = """
_handle = signal.signal


def listen(number, handler):
    _handle(number, handler)
    print("listens", flush=True)


signal.signal = listen
"""
"""Says when a trainer has its own handler of SIGTERM."""
GIVES_UP = "_ZN6paddle11distributed12paddle_flags24FLAGS_pserver_timeout_msE"


def assert_nothing_lost(job) -> None:
    """Asserts that each pass counts once, with every record of each shard, and that the model is as
    good as undisturbed.
    """
    for trainer, records in enumerate(job.records()):
        assert [(m["pass"], m["records"]) for m in job.metrics(trainer)] == [
            (number, records) for number in range(5)
        ]
    found = job.judged()
    assert found["pass"] == 4 and found["value"] > 0.6, found


@pytest.fixture
def job(training_job):
    """A quick_start job whose trainers wait in the middle of the second pass until the test
    releases them.
    """
    job = training_job(PASSES="5")
    job.hold_at_record(900)
    return job


def test_sigterm_keeps_the_pass_so_far_and_the_next_run_goes_on_in_its_middle(job):
    """A storm has one run of a job, and no pod of it stays away."""
    job.split(job.make_sample("--lines", "2000"))
    job.start()
    job.wait_until_held()
    job.terminate()
    job.wait_until(
        lambda: all("told to stop: the trainers may save" in job.log(index) for index in range(3))
    )
    job.release()
    job.end_with(143, 143, 143)
    assert not job.folder.done(4).exists()
    position = json.loads((job.folder.output / "interrupted/done").read_text())
    job.run(RUN_ID="the-next")
    assert_nothing_lost(job)
    assert not (job.folder.output / "interrupted").exists()
    assert position["pass"] == 1 and all(each["read"] for each in position["trainers"])


@pytest.mark.parametrize(
    ("program", "runtime", "before"),
    [
        ("quick_start", "fleet-ps", "def network():\n"),
        pytest.param(
            *("collective", "collective", "        super().__init__()\n"), marks=pytest.mark.long
        ),
    ],
)
def test_sigterm_while_an_attempt_starts_ends_it_everywhere_at_once(
    training_job, program, runtime, before
):
    """Trainer 1 does not listen to SIGTERM yet: Paddle's own handler ends it. The others do, and
    wait for it to connect, a moment of which no line of a program tells.
    """
    job = training_job(program, PASSES="2", RUNTIME=runtime, GRACE="60")
    indent = " " * (8 if runtime == "collective" else 4)
    hold = f'{indent}os.environ["TRAINING_ROLE"] == "TRAINER" and index == "1" and hold()\n'
    head = "from collections import Counter\n"
    job.change(head, HOLD.format(place=str(job.place)) + LISTENS + head)
    job.change(before, before + hold)
    job.split(job.make_sample("--lines", "1000"))
    job.start()
    job.wait_until_held(1)
    for index in (0, 2):
        job.wait_for(index, f"trainer {index}. listens")
    began = time.monotonic()
    job.terminate(1)
    assert job.pods[1].wait(60) == 143, job.logs()
    job.wait_for(0, "attempt 1 ends: the pod of trainer 1 .* was told to stop")
    assert time.monotonic() - began < 20, job.logs()
    assert all(job.pods[index].poll() is None for index in (0, 2))
    job.wait_until(lambda: job.attempts()[0]["cause"])
    assert job.attempts()[0]["kind"] == "stopped"
    job.release()
    job.start(1)
    job.end_with()


@pytest.mark.long
def test_a_pserver_that_hangs_is_named_fails_the_probe_of_its_own_pod_alone_and_ends_the_attempt(
    job,
):
    """Paddle gives up a silent pserver after 500 s and trains on without its answer; the test
    shortens this to 3 s. A storm freezes for shorter than a pod may be silent.
    """
    flag = (
        f'ctypes.c_int32.in_dll(ctypes.CDLL(paddle.base.libpaddle.__file__), "{GIVES_UP}").value '
        "= 3000"
    )
    job.change("\nimport paddle\n", f"\nimport ctypes\nimport paddle\n{flag}\n")
    job.split(job.make_sample("--lines", "2000"))
    job.start(STALL="15")
    job.wait_until_held()
    os.kill(job.child(1, "pserver"), signal.SIGSTOP)
    job.release()
    named = "waits for pserver 1, which has not answered"
    job.wait_until(lambda: any(named in job.probe(pod, stall="1").stdout for pod in (0, 2)))
    job.wait_until(
        lambda: "this pod's pserver has not answered for" in job.probe(1, stall="1").stderr
    )
    assert "attempt 1 ends: pserver 1 of job-1.job did not answer for" in job.end_with()
    trained = "".join(
        job.folder.train_log(trainer).read_text(errors="replace") for trainer in range(3)
    )
    # A pull that fails because the end of the attempt kills its pserver does not count as given up.
    assert "Reached timeout" not in trained
    assert_nothing_lost(job)


def test_a_pass_saved_at_any_step_is_resumed_by_real_pservers(training_job):
    """A power of Adam's betas that is a subnormal float32 ends a pserver when saved as text. The
    test forces the steps.
    """
    job = training_job(pods=1, PASSES="1", ATTEMPTS="1")
    forced = """
from paddle_node.training.backends.parameter_servers import ParameterServers
EDGES = (828, range(1, 100)), (103_919, range(829, 950))
AFTER = {each: edge for edge, steps in EDGES for each in steps}
ParameterServers.steps = property(
    lambda self: self._steps, lambda self, steps: setattr(self, "_steps", AFTER.get(steps, steps)))
"""
    job.change("\njob = ", f"{forced}\njob = ")
    job.split(job.make_sample("--lines", "300"))
    for number, steps in enumerate((828, 103_919)):
        job.run(RUN_ID=f"run-{number}", PASSES=str(number + 1))
        assert (
            json.loads((job.folder.pass_dir(number) / "parameters.json").read_text())["steps"]
            == steps
        )
    job.run(RUN_ID="last", PASSES="3")
    assert [each["pass"] for each in job.metrics(0)] == [0, 1, 2]
