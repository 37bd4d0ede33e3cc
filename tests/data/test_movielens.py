"""The maker of MovieLens' data: its size and shape, and equal bytes for equal seeds."""

import runpy
from collections import Counter
from pathlib import Path

import pytest

MAKER = Path(__file__).parents[2] / "examples/recommendation/make_movielens.py"


@pytest.mark.slow
@pytest.mark.long
def test_it_is_of_the_size_and_shape_of_the_published_file() -> None:
    lines = runpy.run_path(str(MAKER))["lines"]
    ratings = list(lines(seed=1))
    rows = [tuple(map(int, line.split("::"))) for line in ratings]
    users = Counter(user for user, *_ in rows)
    movies = {movie for _, movie, *_ in rows}
    assert (len(rows), len(users), len(movies), max(movies)) == (1_000_209, 6_040, 3_706, 3_952)
    assert len({row[:2] for row in rows}) == len(rows) and min(users.values()) >= 20
    counts = Counter(rating for _, _, rating, _ in rows)
    assert [counts[rating] for rating in (1, 2, 3, 4, 5)] == [
        56_174,
        107_557,
        261_197,
        348_971,
        226_310,
    ]
    assert list(lines(seed=1)) == ratings and list(lines(seed=2)) != ratings
