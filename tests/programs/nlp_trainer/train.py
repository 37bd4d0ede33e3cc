"""A small BERT learns whether the sum of its input is odd, by PaddleNLP's Trainer. Without dropout:
the Trainer of 2.8.1 does not resume that on CPUs.
"""

import zlib  # noqa: F401  Before Paddle, which brings one of its own.

import numpy as np
import paddle
from paddlenlp.trainer import PdArgumentParser, Trainer, TrainingArguments
from paddlenlp.transformers import BertConfig, BertForSequenceClassification


class Sums(paddle.io.Dataset):
    def __init__(self):
        self.ids = np.random.default_rng(0).integers(4, 64, (128, 16))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "labels": np.int64(ids.sum() % 2)}


def main():
    (arguments,) = PdArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    paddle.set_device(arguments.device)
    paddle.seed(arguments.seed)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Sums(),
        criterion=paddle.nn.CrossEntropyLoss(),
    )
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
