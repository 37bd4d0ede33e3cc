"""Movie recommendation from MovieLens' ratings.dat: a line is `user::movie::rating::time`.

It predicts a rating from a vector for the user and one for the movie: the tendency of each (a
linear part) and how well the two match (their product), around the mean of all ratings. Every
MovieLens size works unchanged.
"""

import paddle
from paddle_node import fleet

WIDTH = 16


def parse(line):
    if not line.strip():
        return None
    fields = line.strip().split("::")
    if len(fields) != 4:
        raise ValueError("a line must be user::movie::rating::time")
    return int(fields[0]), int(fields[1]), float(fields[2])


def count(all_ratings):
    ratings = users = movies = total = 0
    for user, movie, rating in all_ratings:
        users, movies = max(users, user), max(movies, movie)
        ratings, total = ratings + 1, total + rating
    return {"users": users, "movies": movies, "ratings": ratings, "total": total}


def merge(shards):
    ratings = sum(shard["ratings"] for shard in shards)
    return {
        "users": max(shard["users"] for shard in shards),
        "movies": max(shard["movies"] for shard in shards),
        "mean": sum(shard["total"] for shard in shards) / max(ratings, 1),
    }


def sample(rated):
    user, movie, rating = rated
    # Row 0 is for users and movies not seen in training: a held-out rating may have a larger user
    # or movie id.
    return {
        "user": [user if user <= summary["users"] else 0],
        "movie": [movie if movie <= summary["movies"] else 0],
        "rating": rating,
    }


def network():
    user, movie, rating = fleet.ids("user"), fleet.ids("movie"), fleet.number("rating")
    who = fleet.pooled(fleet.embedding("users", user, rows=summary["users"] + 1, width=WIDTH))
    what = fleet.pooled(fleet.embedding("movies", movie, rows=summary["movies"] + 1, width=WIDTH))
    tendency = paddle.static.nn.fc(paddle.concat([who, what], axis=1), 1)
    fit = paddle.sum(who * what, axis=1, keepdim=True)
    guess = tendency + fit + summary["mean"]
    loss = paddle.mean(paddle.nn.functional.square_error_cost(guess, rating))
    return fleet.Model(loss, prediction=guess, answer=rating)


job = fleet.start(parse)
summary = job.agree("ratings", count, merge)
job.run(network, sample, learning_rate=0.005, batch=64)
