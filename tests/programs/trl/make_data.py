"""A small Qwen2 with a tokenizer of its own, and sentences that count. Argument: where the data
goes.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

place = Path(sys.argv[1])
words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
texts = [f"{words[i % 10]} and then {words[(i + 1) % 10]}" for i in range(256)]
(place / "text").mkdir()
(place / "text/train.jsonl").write_text(
    "".join(json.dumps({"text": text}) + "\n" for text in texts)
)
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
end = "<|endoftext|>"
alphabet = pre_tokenizers.ByteLevel.alphabet()
tokenizer.train_from_iterator(
    texts, trainers.BpeTrainer(vocab_size=300, special_tokens=[end], initial_alphabet=alphabet)
)
fast = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, eos_token=end, pad_token=end, unk_token=end
)
fast.save_pretrained(place / "model")
config = Qwen2Config(
    vocab_size=len(fast), **json.loads(Path(__file__).with_name("model.json").read_text())
)
Qwen2ForCausalLM(config).save_pretrained(place / "model")
