"""A recorder for systemctl on a machine under test: it records each call, and runs what a k3s unit
starts. Called as udevadm, dnf or journalctl, it succeeds.

Limits: no systemd runs. A k3s unit's ExecStart and AssertPathIsMountPoint are honoured, in the
foreground; the boot's own unit is left to `Machine`; timers never fire; nothing shows that Amazon
Linux's kernel has the modules.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

UNITS = Path("/etc/systemd/system")
with Path("/account/calls").open("a") as calls:
    calls.write(json.dumps({"argv": sys.argv[1:]}) + "\n")

match sys.argv[1:]:
    case ["journalctl", *_]:
        print("the last line of the log")
    case ["systemctl", "start", "--no-block", unit]:
        text = (UNITS / unit).read_text()
        for path in re.findall(r"^AssertPathIsMountPoint=(.*)$", text, re.MULTILINE):
            if subprocess.run(["mountpoint", "-q", path], check=False).returncode != 0:
                sys.exit(f"Assertion failed for {unit}")
        command = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE).group(1)
        subprocess.run(command.split(), env={"PATH": "/usr/bin:/usr/sbin"}, check=False)
    case ["systemctl", "--quiet", "is-active", "paddle-file-system.service"]:
        sys.exit(0 if Path("/run/file-system-is-mounted").exists() else 3)
    case ["systemctl", "stop", *_]:
        Path("/run/k3s-runs").unlink(missing_ok=True)
    case ["systemctl", "enable", *words]:
        for unit in words:
            assert unit.startswith("--") or (UNITS / unit).exists(), (
                f"{unit} is enabled but not there"
            )
