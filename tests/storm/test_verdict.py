"""What a verdict says of a run, by the lines that its ranks printed."""

from collections.abc import Mapping

import pytest
from paddle_node.volume.steps import LineReader

from paddle_aws.storm.faults import Fault
from paddle_aws.storm.storm import describe_calm
from paddle_aws.storm.trace import Event, InflictedFault, Trace
from paddle_aws.storm.verdict import Calm, judge

READER = LineReader({"step": r"step (\d+)", "total": r"total (\w+)"})


def run(
    *attempts: Mapping[int, str], last: Mapping[str, float] | None = None, reader=READER
) -> Trace:
    """A run that ended well. `attempts`: by rank, the lines that it printed."""
    trace = Trace(succeeded=True, last=last or {})
    for number, ranks in enumerate(attempts, 1):
        trace.events.append(Event("start", number, number, 0))
        for rank, lines in ranks.items():
            for line in filter(None, lines.split(";")):
                step, metrics = reader.parse(line)
                trace.add_step(Event("step", number, number, rank, step, metrics))
    return trace


def steps(*numbers: int, lost: int = 0) -> str:
    return ";".join(f"step {step} total {sum(range(lost, step + 1))}" for step in numbers)


def sentences(trace: Trace, calm: Trace) -> list[str]:
    return [finding.sentence for finding in judge(trace, Calm([calm, calm])).findings]


WHOLE = steps(*range(1, 13))
CALM = run({0: WHOLE, 1: WHOLE})
EVERY_FIFTH = "step 5;step 10;step 15;step 20"


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        ([{0: WHOLE, 1: WHOLE}], []),
        (
            [
                {0: steps(*range(1, 10)), 1: steps(*range(1, 9))},
                {0: steps(*range(10, 13)), 1: steps(*range(10, 13), lost=10)},
            ],
            ["rank 1: total at step 10 is 10 in attempt 2; undisturbed runs have 55"],
        ),
        (
            [
                {0: steps(*range(1, 9)), 1: steps(*range(1, 6))},
                {0: steps(*range(9, 13)), 1: steps(*range(9, 13))},
            ],
            ["rank 1: steps were left out: no attempt reported 6, 7"],
        ),
        # Two kills in a row, each after a save: 9 and 10 were done. With one, 9 was not.
        ([{0: steps(*range(1, 9)), 1: WHOLE}, {}, {0: steps(11, 12)}], []),
        (
            [{0: steps(*range(1, 9)), 1: WHOLE}, {0: steps(11, 12)}],
            ["steps were left out: no attempt reported 9"],
        ),
        # The same after the last step was saved, and before it was told.
        ([{0: steps(*range(1, 12)), 1: WHOLE}, {}], []),
        (
            [{0: steps(*range(1, 11)), 1: WHOLE}, {}],
            ["the job succeeded, but the last step it reported is 10 of 12"],
        ),
        ([{0: "step 1;" + WHOLE + ";step 12", 1: WHOLE}], []),
        (
            [{0: steps(1, 2, 2, *range(3, 13)), 1: WHOLE}],
            ["step 2 was done again within attempt 1"],
        ),
    ],
)
def test_each_rank_does_each_step_once_with_the_values_of_calm_runs(attempts, said):
    assert sentences(run(*attempts), CALM) == said


def test_steps_that_are_told_at_intervals_of_the_process_need_not_be_those_of_calm_runs():
    calm = run({0: EVERY_FIFTH})
    assert sentences(run({0: "step 5"}, {0: "step 12;step 17"}), calm) == []
    lost = ["steps were left out: no attempt reported 10"]
    assert sentences(run({0: "step 5"}, {0: "step 20"}), calm) == lost


def test_each_number_of_the_end_is_there_and_as_in_calm_runs():
    calm = run({0: WHOLE}, last={"accuracy": 0.9, "loss": 0.1})
    said = ["the job succeeded, but did not print its result: accuracy"]
    assert sentences(run({0: WHOLE}, last={"loss": 0.1}), calm) == said
    other = run({0: WHOLE}, last={"accuracy": 0.8, "loss": 0.1})
    assert Calm([calm, calm]).equal and not Calm([calm, other]).equal
    assert Calm([run({0: EVERY_FIFTH})] * 2).equal


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_value_that_is_no_number_is_one_that_can_be_equal(value):
    calm = run({0: f"step 1 total {value}"}, last={"loss": float(value)})
    assert Calm([calm, calm]).equal and sentences(calm, calm) == []
    (said,) = sentences(run({0: "step 1 total 3"}, last=calm.last), calm)
    assert said == f"total at step 1 is 3 in attempt 1; undisturbed runs have {value}"


def test_a_line_of_a_program_reaches_no_terminal_and_does_no_harm():
    reader = LineReader({})
    nested = "[" * 950 + "]" * 950
    assert reader.parse(f'paddle_node: step 1001 {{"a":{nested}}}') == (None, {})
    assert reader.parse('paddle_node: step 1 {"\\u001b[2J": 1}') == (1, {"\\x1b[2J": 1.0})


def test_a_program_that_ends_at_a_damaged_checkpoint_is_told_what_the_storm_did_to_it():
    effect = "step-18.pdckpt has 4 of 8 bytes; step-12.pdckpt lies beside it"
    fault = InflictedFault(Fault.parse("damage-checkpoint/0@saved-3"), 1.0, effect, 1)
    reason = "ValueError: `paddle.load` can not parse the file:output/step-18.pdckpt"
    trace = Trace(inflicted=[fault], reason=reason, seconds=2.0)
    (finding,) = judge(trace, Calm([Trace()])).findings
    assert finding.sentence == (
        f"the job failed: {reason}; the checkpoint that the storm damaged: {effect}"
    )


def test_a_speed_is_no_difference_whatever_it_is_called():

    reader = LineReader({"step": r"step (\d+)", "throughput": r"at (\S+)", "loss": r"loss (\S+)"})
    speeds = [
        run({0: f"step 1 at {speed} loss {loss}"}, reader=reader)
        for speed, loss in (("1757.4", 0.5), ("2376.8", 0.5), ("90382.3", 0.5), ("1800", 0.6))
    ]
    calm = Calm(speeds[:2])
    assert judge(speeds[2], calm).passed and calm.compares and calm.equal
    assert calm.too_different == []
    assert not judge(speeds[3], calm).passed
    assert not Calm([run({0: "step 1"})] * 2).compares


def test_what_describes_the_model_and_is_not_compared_is_named():
    reader = LineReader({"step": r"step (\d+)", "loss": r"loss (\S+)"})
    runs = [
        run({0: f"step 1 loss {loss}"}, last={"rmse": rmse, "records": 9.0}, reader=reader)
        for loss, rmse in ((0.1, 1.0), (0.5, 2.0))
    ]
    calm = Calm(runs)
    # No step and no count differs, but a result does.
    assert calm.equal and calm.too_different == ["loss at steps", "rmse"]
    said = describe_calm(calm)
    assert said.endswith("; by over a quarter in loss at steps, rmse, which is not compared"), said
