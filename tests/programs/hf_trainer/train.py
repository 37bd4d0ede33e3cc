"""A small BERT learns whether the sum of its input is odd, by Hugging Face's Trainer, from random
weights, with dropout.
"""

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

# On CPUs the Trainer loads the optimizer to the device cpu:0, which torch.load does not know.
torch.serialization.register_package(
    9, lambda storage: None, lambda storage, name: storage if name.startswith("cpu:") else None
)


class Sums(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(4, 64, (128, 16), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "labels": ids.sum() % 2}


def main():
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    set_seed(arguments.seed)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=2,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config), args=arguments, train_dataset=Sums()
    )
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
