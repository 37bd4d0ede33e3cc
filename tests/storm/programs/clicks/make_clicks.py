"""Writes clicks.csv: user, item, hour, clicked."""

import random

rng = random.Random(4)
with open("clicks.csv", "w") as f:
    for _ in range(2400):
        user, item, hour = rng.randrange(60), rng.randrange(40), rng.randrange(24)
        liked = (user * 7 + item * 3) % 5 < 2
        f.write(f"{user},{item},{hour},{int(rng.random() < (0.8 if liked else 0.15))}\n")
