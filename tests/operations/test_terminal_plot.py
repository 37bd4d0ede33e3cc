"""The loss in characters: where the curve goes, and that it fits."""

from __future__ import annotations

from operations.loss_plot import chart


def test_a_falling_curve() -> None:
    drawn = chart([(0, 4.0), (1, 3.0), (2, 2.0), (3, 1.0)], "loss", width=22, height=4)
    assert drawn == [
        "loss",
        "4 |****",
        "  |    ******",
        "  |          ******",
        "1 |                ***",
        "   0                 3",
    ]


def test_a_loss_that_is_no_number_leaves_a_gap() -> None:
    drawn = chart([(0, 1.0), (1, float("nan")), (2, 1.0)], "loss", width=19, height=3)
    assert drawn[2] == "1 |*" + " " * 14 + "*"


def test_one_point_is_no_curve() -> None:
    assert chart([(0, 1.0)], "loss", width=40) == []


def test_more_points_than_cells() -> None:
    drawn = chart([(n, 5000.0 - n) for n in range(5000)], "loss", width=40)
    assert max(map(len, drawn)) <= 40
