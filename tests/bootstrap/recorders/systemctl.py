"""A recorder for systemctl on a machine under test: it notes each call, and runs what a k3s unit starts.

Limits: no systemd. Of a k3s unit it honours ExecStart and AssertPathIsMountPoint, in the foreground; a boot that is to be tried
again it leaves to `Machine.retry`; `enable` notes the unit for the next boot; timers never come due.
"""

import re
import subprocess
import sys
from pathlib import Path

UNITS = Path("/etc/systemd/system")
with Path("/account/systemctl").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\n")

match sys.argv[1:]:
    case ["start", "--no-block", "paddle-cluster.service" as unit]:
        if not (UNITS / unit).exists():
            sys.exit(f"Unit {unit} not found.")
        Path("/var/boot-to-retry").touch()
    case ["start", "--no-block", unit]:
        text = (UNITS / unit).read_text()
        for path in re.findall(r"^AssertPathIsMountPoint=(.*)$", text, re.MULTILINE):
            if subprocess.run(["mountpoint", "-q", path], check=False).returncode != 0:
                sys.exit(f"Assertion failed for {unit}")
        command = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE).group(1)
        subprocess.run(command.split(), env={"PATH": "/usr/bin:/usr/sbin"}, check=False)
    case ["stop", *_]:
        Path("/run/k3s-runs").unlink(missing_ok=True)
    case ["enable", *units]:
        for unit in units:
            assert (UNITS / unit).exists(), f"{unit} is enabled but not there"
