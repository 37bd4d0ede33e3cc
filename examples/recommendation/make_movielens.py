"""Makes data of the size and shape of MovieLens 1M's ratings.dat, without a download.

1,000,209 lines `user::movie::rating::time`, sorted by user: 6,040 users rated 3,706 movies, whose
ids go up to 3,952; each user rated at least 20, and there are as many ones, twos, threes, fours and
fives as in the published file. Who likes what is drawn; equal seeds give equal bytes.
"""

import argparse
import math
import random
from bisect import bisect
from itertools import accumulate
from pathlib import Path

USERS = 6_040
MOVIES = 3_706
HIGHEST_ID = 3_952  # Some ids belong to movies that nobody rated.
RATINGS = {1: 56_174, 2: 107_557, 3: 261_197, 4: 348_971, 5: 226_310}
FEWEST, MOST = 20, 2_314  # Ratings of one user.
KINDS = 8
FIRST_TIME, JOINED = 956_703_932, 120 * 86_400  # Seconds; most users came in the first year.


def counts(draw, total):
    """How many movies each user rates: a few rate a lot."""
    weights = [draw.lognormvariate(0, 1.1) for _ in range(USERS)]
    share = (total - FEWEST * USERS) / sum(weights)
    rated = [min(MOST, FEWEST + int(weight * share)) for weight in weights]
    while (missing := total - sum(rated)) > 0:
        for user in draw.sample(range(USERS), min(missing, USERS)):
            rated[user] += rated[user] < MOST
    return rated


def pairs(draw, total):
    """Who rated what, as indexes of user and movie, in the order of users. Each movie is rated."""
    popularity = list(
        accumulate(math.exp(-rank / 720) / (rank + 60) ** 0.4 for rank in range(MOVIES))
    )
    rated = counts(draw, total)
    chosen = [set() for _ in range(USERS)]
    for movie in range(MOVIES):
        chosen[draw.randrange(USERS)].add(movie)
    for user, count in enumerate(rated):
        movies = chosen[user]
        while len(movies) < count:
            movies.add(bisect(popularity, draw.random() * popularity[-1]))
        for movie in sorted(movies):
            yield user, movie


def lines(seed):
    draw, total = random.Random(seed), sum(RATINGS.values())
    generous = [draw.gauss(0, 0.45) for _ in range(USERS)]
    liked = [draw.gauss(0, 0.55) for _ in range(MOVIES)]
    taste = [[draw.gauss(0, 0.4) for _ in range(KINDS)] for _ in range(USERS)]
    kind = [draw.randrange(KINDS) for _ in range(MOVIES)]
    ids = [HIGHEST_ID, *draw.sample(range(1, HIGHEST_ID), MOVIES - 1)]
    draw.shuffle(ids)  # An id says nothing about how popular a movie is.
    rated = list(pairs(draw, total))
    opinions = [
        generous[user] + liked[movie] + taste[user][kind[movie]] + draw.gauss(0, 0.8)
        for user, movie in rated
    ]
    # The lowest opinions are rated 1, the next ones 2: so each rating is as common as it should be.
    limits = list(accumulate(RATINGS.values()))
    ratings = [0] * total
    for rank, index in enumerate(sorted(range(total), key=opinions.__getitem__)):
        ratings[index] = 1 + bisect(limits, rank)
    now = [FIRST_TIME + int(draw.expovariate(1 / JOINED)) for _ in range(USERS)]
    for (user, movie), rating in zip(rated, ratings, strict=True):
        now[user] += draw.randrange(60)
        yield f"{user + 1}::{ids[movie]}::{rating}::{now[user]}\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with options.file.open("w") as stream:
        stream.writelines(lines(options.seed))
