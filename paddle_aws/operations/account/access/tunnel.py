"""Forwards a port of this machine to a private API endpoint, through the cluster's tunnel machine,
with Session Manager.

Promises: no SSH, no public address, no key. AWS's plugin gets the session's token through its
environment, where other users of this machine cannot read it. The session ends when the tunnel
closes.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from paddle_aws.operations.account.aws import client, list_all
from paddle_aws.operations.errors import BadInput, Failed

PLUGIN = "session-manager-plugin"
LAST_WITHOUT_ENVIRONMENT = (1, 2, 497, 0)
"""The last version that takes the token only from its command line (according to the aws CLI's own
source).
"""
RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"
TAG = "paddle-aws/tunnel"
"""The machine's tag; its value is the session document's name."""


def forward_port(document: str, region: str, port: int, ready: Callable[[], None]) -> None:
    """Forwards `port` of this machine to the target of the session document `document`, until the
    tunnel is closed.

    Calls `ready` once the session has started. Raises BadInput or Failed.
    """
    plugin = _plugin()
    ssm = client("ssm", region)
    instances = machines(client("ec2", region), document)
    if not instances:
        raise Failed(
            f"no machine {document} runs in {region}: its Auto Scaling group starts one within "
            "minutes, so try again then"
        )
    request = {
        "Target": instances[0],
        "DocumentName": document,
        "Parameters": {"localPortNumber": [str(port)]},
    }
    session = ssm.start_session(**request)
    try:
        ready()
        response = {name: session[name] for name in ("SessionId", "TokenValue", "StreamUrl")}
        profile, endpoint = os.environ.get("AWS_PROFILE", ""), ssm.meta.endpoint_url
        start = ["StartSession", profile, json.dumps(request), endpoint]
        command = [plugin, RESPONSE, region, *start]
        environment = {**os.environ, RESPONSE: json.dumps(response)}
        # The plugin's output goes to stderr, apart from the results; at Ctrl-C the plugin gets the
        # same signal.
        if code := subprocess.call(command, env=environment, stdout=2):
            raise Failed(f"{PLUGIN} ended with {code}: what it printed says why")
    finally:
        # The plugin ends the session too, and one without a plugin ends on its own: a user who may
        # not end it need not.
        with contextlib.suppress(Exception):
            ssm.terminate_session(SessionId=session["SessionId"])


def machines(ec2: Any, document: str) -> list[str]:
    """Returns the running machines that the document's sessions go through: one, except while it is
    being replaced.
    """
    filters = [
        {"Name": f"tag:{TAG}", "Values": [document]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    path = "Reservations[].Instances[].InstanceId"
    return list(list_all(ec2, "describe_instances", path, Filters=filters))


def _plugin() -> str:
    """Returns the path of AWS's plugin. Raises BadInput if there is no usable one."""
    path = shutil.which(PLUGIN)
    if path is None:
        raise BadInput(
            f"{PLUGIN} is not installed: a tunnel needs it (AWS's documents name it the Session "
            "Manager plugin)"
        )
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    installed = done.stdout.strip()
    numbers = installed.split(".") if re.fullmatch(r"\d+(\.\d+){1,3}", installed) else ()
    version = tuple(map(int, numbers))
    if version <= LAST_WITHOUT_ENVIRONMENT:
        least = ".".join(map(str, LAST_WITHOUT_ENVIRONMENT))
        raise BadInput(
            f"{PLUGIN} is {installed or 'of an unknown version'}: one newer than {least} is "
            "needed, which keeps tokens unseen"
        )
    return path
