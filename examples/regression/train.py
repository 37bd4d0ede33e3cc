"""Regression: a line is `district,rooms,area,price`; it predicts what a flat costs from two numbers
and an id.
"""

import paddle
from paddle_node import fleet


def parse(line):
    district, rooms, area, price = line.split(",")
    return int(district), float(rooms), float(area), float(price)


def count(flats):
    flats = list(flats)
    return {
        "districts": max(flat[0] for flat in flats),
        "flats": len(flats),
        "total": sum(flat[3] for flat in flats),
    }


def merge(shards):
    flats = sum(shard["flats"] for shard in shards)
    return {
        "districts": max(shard["districts"] for shard in shards),
        "price": sum(shard["total"] for shard in shards) / flats,
    }


def sample(flat):
    district, rooms, area, price = flat
    # Row 0 is for districts not seen in training. Numbers around 1 are learned fastest.
    district = district if district <= summary["districts"] else 0
    return {
        "district": [district],
        "rooms": rooms / 4,
        "area": area / 100,
        "price": price / summary["price"],
    }


def network():
    rooms, area, price = fleet.number("rooms"), fleet.number("area"), fleet.number("price")
    districts = fleet.embedding(
        "districts", fleet.ids("district"), rows=summary["districts"] + 1, width=8
    )
    inputs = paddle.concat([fleet.pooled(districts), rooms, area], axis=1)
    guess = paddle.static.nn.fc(paddle.static.nn.fc(inputs, 16, activation="relu"), 1)
    loss = paddle.mean(paddle.nn.functional.square_error_cost(guess, price))
    return fleet.Model(loss, prediction=guess, answer=price)


job = fleet.start(parse)
summary = job.agree("flats", count, merge)
job.run(network, sample, learning_rate=0.01, batch=32)
