import json

from paddle_node.training import pass_metrics


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path):
    file = tmp_path / "node_0" / "metrics.jsonl"
    assert pass_metrics.recorded(file) == set()
    pass_metrics.append(file, {"pass": 0, "attempt": 1, "loss": 0.5})
    with file.open("a") as stream:
        stream.write('{"pass": 1, "att')  # The volume was full.
    assert pass_metrics.recorded(file) == {(0, 1)}
    pass_metrics.append(file, {"pass": 1, "attempt": 2, "loss": 0.25})
    assert pass_metrics.recorded(file) == {(0, 1), (1, 2)}
    first, cut, last = file.read_text().splitlines()
    assert (json.loads(first)["loss"], cut, json.loads(last)["loss"]) == (0.5, '{"pass": 1, "att', 0.25)
