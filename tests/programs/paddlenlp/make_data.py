"""A small BERT, and the repository's sample text as its own tool prepares it. Arguments: where the
data goes, the program.
"""

import json
import re
import subprocess
import sys
import zlib  # noqa: F401  Before Paddle, which brings one of its own.
from collections import Counter
from pathlib import Path

from paddlenlp.transformers import BertConfig, BertForPretraining, BertTokenizer

place, program = map(Path, sys.argv[1:])
text = program / "data/sample_text.txt"
words = Counter(re.findall(r"[a-z]+|[^\sa-z]", text.read_text().lower()))
model = place / "model"
model.mkdir()
vocabulary = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *(word for word, _ in words.most_common(800)),
]
(model / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
config = BertConfig(
    vocab_size=len(vocabulary), **json.loads(Path(__file__).with_name("model.json").read_text())
)
BertForPretraining(config).save_pretrained(model)
BertTokenizer(str(model / "vocab.txt")).save_pretrained(model)
tool = [
    sys.executable,
    "create_pretraining_data.py",
    f"--input_file={text}",
    f"--output_file={place}/training_data.hdf5",
]
options = [
    "--max_seq_length=64",
    "--max_predictions_per_seq=10",
    "--dupe_factor=5",
    f"--bert_model={model}",
]
subprocess.run([*tool, *options], cwd=program, check=True)
