"""The program's own sample. Arguments: where the data goes, the program's folder."""

import shutil
import sys
from pathlib import Path

place, program = map(Path, sys.argv[1:])
shutil.copy(program / "models/rank/dnn/data/sample_data/train/sample_train.txt", place)
