"""What a verdict says of a run."""

from paddle_aws.storm.faults import Fault
from paddle_aws.storm.trace import Inflicted, Trace
from paddle_aws.storm.verdict import Calm, judge


def test_a_program_that_ends_at_a_damaged_checkpoint_is_told_what_the_storm_did_to_it():
    effect = "step-18.pdckpt has 4 of 8 bytes; step-12.pdckpt lies beside it"
    fault = Inflicted(Fault.parse("damage-checkpoint/0@saved-3"), 1.0, effect, 1)
    reason = "ValueError: `paddle.load` can not parse the file:output/step-18.pdckpt"
    trace = Trace(inflicted=[fault], reason=reason, seconds=2.0)
    (finding,) = judge(trace, Calm([Trace()])).findings
    assert finding.sentence == (
        f"the job failed: {reason}; the checkpoint that the storm damaged: {effect}"
    )
