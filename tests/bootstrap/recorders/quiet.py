"""A recorder for modprobe, sysctl, udevadm, dnf and journalctl on a machine under test: it notes the call and says yes.

Limits: the kernel of the machine that runs the tests is left as it is, so nothing shows that Amazon Linux's has the modules.
"""

import sys
from pathlib import Path

with Path("/account/quiet").open("a") as calls:
    calls.write(" ".join([Path(sys.argv[1]).name, *sys.argv[2:]]) + "\n")
if Path(sys.argv[1]).name == "journalctl":
    print("the last line of the log")
