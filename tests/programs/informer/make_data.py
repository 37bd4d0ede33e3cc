"""A sine by the hour. Argument: where it goes."""

import math
import sys
from datetime import datetime, timedelta
from pathlib import Path

rows = [
    f"{datetime(2026, 1, 1) + timedelta(hours=hour)},{math.sin(hour / 24):.4f}\n"
    for hour in range(1500)
]
(Path(sys.argv[1]) / "data.csv").write_text("date,OT\n" + "".join(rows))
