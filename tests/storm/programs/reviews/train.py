"""Bag-of-words sentiment on generated reviews. Paddle, two or more workers."""

import os
import sys

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle.io import DataLoader, Dataset, DistributedBatchSampler

EPOCHS = int(os.environ.get("EPOCHS", "8"))
OUT = os.environ.get("OUT", "output")
VOCABULARY, LENGTH = 3000, 60


class Reviews(Dataset):
    def __init__(self, count, seed):
        super().__init__()
        taste = np.random.default_rng(5).normal(0, 1, VOCABULARY)
        rng = np.random.default_rng(seed)
        self.words = rng.integers(0, VOCABULARY, (count, LENGTH))
        chance = 1 / (1 + np.exp(-taste[self.words].sum(1) / 2))
        self.stars = (rng.random(count) < chance).astype("int64")

    def __len__(self):
        return len(self.stars)

    def __getitem__(self, i):
        return self.words[i], self.stars[i]


class Classifier(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = paddle.nn.Embedding(VOCABULARY, 256)
        self.hidden = paddle.nn.Linear(256, 48)
        self.out = paddle.nn.Linear(48, 2)

    def forward(self, words):
        return self.out(paddle.tanh(self.hidden(self.embed(words).mean(axis=1))))


def main():
    dist.init_parallel_env()
    paddle.seed(11)
    model = Classifier()
    opt = paddle.optimizer.Adam(5e-3, parameters=model.parameters())
    begin = 0
    latest = os.path.join(OUT, "latest.pdckpt")
    if os.path.exists(latest):
        ckpt = paddle.load(latest)
        model.set_state_dict(ckpt["model"])
        opt.set_state_dict(ckpt["optimizer"])
        begin = ckpt["epoch"] + 1
        print(f"[resume] continuing with epoch {begin}", file=sys.stderr)
    net = paddle.DataParallel(model)
    data = Reviews(3200, seed=1)
    # Shuffles each epoch differently by itself.
    sampler = DistributedBatchSampler(data, batch_size=200, shuffle=True)
    loader = DataLoader(data, batch_sampler=sampler)
    for epoch in range(begin, EPOCHS):
        net.train()
        for step, (words, stars) in enumerate(loader):
            loss = F.cross_entropy(net(words), stars)
            loss.backward()
            opt.step()
            opt.clear_grad()
            if dist.get_rank() == 0:
                print(f"Epoch {epoch} | step {step}/{len(loader)} | loss {loss.item():.6f}")
        if dist.get_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": opt.state_dict(), "epoch": epoch}
            paddle.save(state, latest + ".part")
            os.replace(latest + ".part", latest)
    if dist.get_rank() == 0:
        net.eval()
        test = Reviews(2000, seed=2)
        scores = model(paddle.to_tensor(test.words))
        loss = F.cross_entropy(scores, paddle.to_tensor(test.stars)).item()
        accuracy = float((scores.numpy().argmax(1) == test.stars).mean())
        print(f"test: loss {loss:.6f} accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
