"""A recorder for udevadm, dnf and journalctl on a machine under test: it notes the call and says yes."""

import json
import sys
from pathlib import Path

with Path("/account/calls").open("a") as calls:
    calls.write(json.dumps({"argv": sys.argv[1:]}) + "\n")
if sys.argv[1] == "journalctl":
    print("the last line of the log")
