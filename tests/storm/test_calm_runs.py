"""Calm runs that a receipt keeps for later storms."""

import json
from datetime import UTC, datetime

from paddle_aws.storm.calm_runs import CalmRuns
from paddle_aws.storm.faults import Fault
from paddle_aws.storm.storm import count_calm
from paddle_aws.storm.trace import Event, InflictedFault, Trace


def test_calm_runs_are_read_with_values_that_are_no_numbers_and_never_with_a_fault(tmp_path):
    values = {"loss": float("nan"), "scale": float("inf")}
    trace = Trace([Event("step", 1.0, 1, 0, 1, values)], succeeded=True, last=values)
    receipt = tmp_path / "receipt.json"

    def read() -> CalmRuns | None:
        runs = CalmRuns(datetime.now(UTC), {"program": "1"}, [trace])
        receipt.write_text(json.dumps({"calm_runs": runs.document()}))
        return CalmRuns.read(receipt)

    runs = read()
    assert runs is not None and repr(runs.traces) == repr([trace])
    trace.inflicted.append(InflictedFault(Fault("<script>", 0, "start"), 1.0))
    assert read() is None


def test_of_calm_runs_that_differ_there_are_twice_as_many():
    def run(loss: float, **last: float) -> Trace:
        return Trace([Event("step", 1.0, 1, 0, 1, {"loss": loss})], succeeded=True, last=last)

    assert count_calm([], 2) == count_calm([run(1.0)], 2) == 2
    assert count_calm([run(1.0, rmse=0.3), run(1.0, rmse=0.3)], 2) == 2
    # A value that is not compared, such as a speed, is no reason.
    assert count_calm([run(1.0, ips=10), run(1.0, ips=20)], 2) == 2
    silent = Trace([Event("step", 1.0, 1, 0, 1, {})], succeeded=True)
    assert count_calm([silent, silent], 2) == 2
    # Nor is a line that came twice.
    twice = run(1.0, rmse=0.3)
    twice.events.append(twice.events[0])
    assert count_calm([run(1.0, rmse=0.3), twice], 2) == 2
    for other in (run(1.01, rmse=0.3), run(1.0, rmse=0.31)):
        assert count_calm([run(1.0, rmse=0.3), other], 2) == 4
        assert count_calm([run(1.0, rmse=0.3), other, other], 3) == 6
