"""Makes sample data for recommendation: lines `user::movie::rating::time`, as MovieLens'
ratings.dat has them.

The bytes are always the same. Users are more or less generous, movies more or less liked, and each
user prefers some kinds of movies: these are what a model can find; noise is what it cannot.
"""

import argparse
import random
from itertools import accumulate
from pathlib import Path

USERS = 300
MOVIES = 150
KINDS = 4
FIRST_TIME = 978_300_000


def lines(count):
    draw = random.Random(1)
    generous = [draw.gauss(0, 0.5) for _ in range(USERS)]
    liked = [draw.gauss(0, 0.6) for _ in range(MOVIES)]
    taste = [[draw.gauss(0, 0.7) for _ in range(KINDS)] for _ in range(USERS)]
    kind = [draw.randrange(KINDS) for _ in range(MOVIES)]
    popularity = list(accumulate(1 / (rank + 10) for rank in range(MOVIES)))
    rated = set()
    while len(rated) < count:
        user = draw.randrange(USERS)
        (movie,) = draw.choices(range(MOVIES), cum_weights=popularity)
        if (user, movie) in rated:
            continue
        rated.add((user, movie))
        opinion = (
            3.6 + generous[user] + liked[movie] + taste[user][kind[movie]] + draw.gauss(0, 0.4)
        )
        rating = min(5, max(1, round(opinion)))
        yield f"{user + 1}::{movie + 1}::{rating}::{FIRST_TIME + 60 * len(rated)}\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=12_000)
    options = parser.parse_args()
    if options.lines > USERS * MOVIES // 2:
        parser.error(
            f"--lines is {options.lines}: {USERS} users and {MOVIES} movies give at most "
            f"{USERS * MOVIES // 2} ratings"
        )
    with options.file.open("w") as stream:
        stream.writelines(lines(options.lines))
