"""paddle.Model.fit, exactly resumed: it counts its epochs anew, so the program saves under its own
numbers, hands fit the epochs that are left, and sets the sampler's epoch, the seed of its order.
"""

import argparse

import numpy
import paddle

EPOCHS = 60
parser = argparse.ArgumentParser()
parser.add_argument("--done", type=int, default=0)
done = parser.parse_args().done


class Sums(paddle.io.Dataset):
    def __getitem__(self, index):
        x = numpy.random.default_rng(index).random(4, "float32")
        return x, x.sum(keepdims=True)

    def __len__(self):
        return 128


class Save(paddle.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        number = done + epoch + 1
        print(f"epoch {number} loss {logs['loss'][0]:.6f}", flush=True)
        self.model.save(f"output/epoch-{number}")


paddle.seed(0)
model = paddle.Model(paddle.nn.Linear(4, 1))
optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
model.prepare(optimizer, paddle.nn.MSELoss())
if done:
    model.load(f"output/epoch-{done}")
sampler = paddle.io.DistributedBatchSampler(Sums(), 8, shuffle=True)
sampler.set_epoch(done)
loader = paddle.io.DataLoader(Sums(), batch_sampler=sampler)
model.fit(loader, epochs=EPOCHS - done, verbose=0, callbacks=[Save()])
