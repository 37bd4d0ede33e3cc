"""Two towers: each worker owns the embeddings of its users, all share the tower of the items."""

import argparse
import os

import numpy as np
import paddle
import paddle.distributed as dist

USERS, ITEMS, SIZE = 500, 400, 16


def interactions(rank):
    rng = np.random.RandomState(3)
    taste, kind = rng.randn(2, USERS, 6), rng.randn(ITEMS, 6)
    rng = np.random.RandomState(40 + rank)
    u, i = rng.randint(0, USERS, 9000), rng.randint(0, ITEMS, 9000)
    score = (taste[rank % 2][u] * kind[i]).sum(1) / 2 + rng.randn(9000) * 0.2
    return u, i, score.astype("float32")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--batch", type=int, default=6000)
    parser.add_argument("--save_steps", type=int, default=6)
    # Embeddings are large: the node's disk is faster than the shared volume.
    parser.add_argument("--scratch", default=os.path.expanduser("~/scratch"))
    args = parser.parse_args()
    dist.init_parallel_env()
    rank = dist.get_rank()
    paddle.seed(5 + rank)
    users = paddle.nn.Embedding(USERS, SIZE)
    paddle.seed(5)
    items = paddle.nn.Sequential(paddle.nn.Embedding(ITEMS, 256), paddle.nn.Linear(256, SIZE))
    adam = paddle.optimizer.Adam(0.02, parameters=users.parameters() + items.parameters())

    shared = "output/items.pdparams"
    mine = os.path.join(args.scratch, f"users-{rank}.pdparams")
    os.makedirs(args.scratch, exist_ok=True)
    first = 0
    if os.path.exists(shared):
        saved = paddle.load(shared)
        items.set_state_dict(saved["items"])
        first = saved["step"]
        if os.path.exists(mine):
            local = paddle.load(mine)
            users.set_state_dict(local["users"])
            adam.set_state_dict(local["adam"])
        print(f"rank {rank} resumes after step {first}", flush=True)

    u, i, score = interactions(rank)
    for step in range(first, args.steps):
        pick = np.random.RandomState(step).randint(0, len(u), args.batch)
        guess = (users(paddle.to_tensor(u[pick])) * items(paddle.to_tensor(i[pick]))).sum(1)
        loss = ((guess - paddle.to_tensor(score[pick])) ** 2).mean()
        loss.backward()
        for parameter in items.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.set_value(parameter.grad / dist.get_world_size())
        adam.step()
        adam.clear_grad()
        if rank == 0:
            print(f"global step {step + 1}, loss {float(loss):.5f}", flush=True)
        if (step + 1) % args.save_steps == 0:
            paddle.save({"users": users.state_dict(), "adam": adam.state_dict()}, mine + ".new")
            os.replace(mine + ".new", mine)
            dist.barrier()
            if rank == 0:
                paddle.save({"items": items.state_dict(), "step": step + 1}, shared + ".new")
                os.replace(shared + ".new", shared)

    guess = (users(paddle.to_tensor(u)) * items(paddle.to_tensor(i))).sum(1)
    error = ((guess - paddle.to_tensor(score)) ** 2).mean()
    dist.all_reduce(error)
    if rank == 0:
        print(f"rmse over all users: {float(error / dist.get_world_size()) ** 0.5:.5f}", flush=True)


if __name__ == "__main__":
    main()
