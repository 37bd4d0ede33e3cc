"""A recorder for the AWS CLI on a machine under test: it records each call, and answers from the
account's folder.

Limits: it knows only the calls below; it evaluates no --query, but its answers have the form that
the query asks for; it checks no permissions and does not test AWS. An attached volume's device
appears at once, under the name that Amazon Linux gives it.
"""

import json
import os
import shutil
import sys
from pathlib import Path

ACCOUNT = Path("/account")


def refuse(code: str, message: str) -> None:
    """Prints an error as the AWS CLI does, and exits."""
    print(f"\nAn error occurred ({code}) when calling the operation: {message}", file=sys.stderr)
    sys.exit(254)


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def bucket_key(uri: str) -> Path:
    return ACCOUNT / "bucket" / uri.removeprefix("s3://")


def answer(state: dict, call: list[str]) -> None:
    match call:
        case ["s3", "cp", *rest]:
            uri, target = [word for word in rest if word.startswith(("s3://", "/"))]
            if state.get("absent_downloads", 0) > 0:
                state["absent_downloads"] -= 1
                refuse("403", "Forbidden")
            if not bucket_key(uri).is_file():
                refuse("404", "Not Found")
            shutil.copyfile(bucket_key(uri), target)
        case ["s3", "ls", uri]:
            files = sorted(bucket_key(uri).glob("*"))
            for file in files:
                print(f"2026-11-21 00:00:00 {file.stat().st_size:10} {file.name}")
            sys.exit(0 if files else 1)
        case ["s3api", "head-object", *rest]:
            if not (
                ACCOUNT / "bucket" / option(rest, "--bucket") / option(rest, "--key")
            ).is_file():
                refuse("404", "Not Found")
            print("{}")
        case ["secretsmanager", "get-secret-value", *rest]:
            secret = option(rest, "--secret-id")
            if state["secrets"].get(secret) is None:
                refuse(
                    "ResourceNotFoundException",
                    "Secrets Manager can't find the specified secret value for staging label: "
                    "AWSCURRENT",
                )
            print(state["secrets"][secret])
        case ["secretsmanager", "put-secret-value", *rest]:
            if state.get("refused_writes", 0) > 0:
                state["refused_writes"] -= 1
                refuse("InternalServiceError", "An error occurred on the server side.")
            value = option(rest, "--secret-string")
            assert value.startswith("file://"), "a secret was given as an argument"
            state["secrets"][option(rest, "--secret-id")] = Path(
                value.removeprefix("file://")
            ).read_text()
            print("{}")
        case ["ec2", "describe-volumes", *rest]:
            volume = state["volume"]
            if option(rest, "--volume-ids") != volume["id"]:
                refuse(
                    "InvalidVolume.NotFound",
                    f"The volume '{option(rest, '--volume-ids')}' does not exist.",
                )
            print(volume["holder"])
            # How the volume changes over time: each look moves on to the next answer.
            if volume["then"]:
                volume["state"], volume["holder"] = volume["then"].pop(0)
        case ["ec2", "attach-volume", *rest]:
            volume = state["volume"]
            if volume["state"] != "available":
                refuse("IncorrectState", f"{volume['id']} is {volume['state']}, not available")
            volume["state"], volume["holder"] = "in-use", option(rest, "--instance-id")
            if not state.get("device_hidden"):
                link = Path(
                    "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_"
                    + volume["id"].replace("-", "")
                )
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(volume["device"])
            print("{}")
        case ["ec2", "describe-instances", *rest]:
            instance_ids = (
                next(word for word in rest if word.startswith("Name=instance-id,Values="))
                .split("Values=")[1]
                .split(",")
            )
            print("\t".join(id for id in instance_ids if id in state["instances"]))
        case ["cloudformation", "signal-resource", *rest]:
            if state.get("no_deploy"):
                refuse(
                    "ValidationError", "Stack is in UPDATE_COMPLETE state and can not be signaled"
                )
            state["signals"].append(
                [
                    option(rest, name)
                    for name in ("--logical-resource-id", "--unique-id", "--status")
                ]
            )
        case ["ecr", "get-login-password", *_]:
            print("a-password-of-ecr")
        case _:
            refuse("Unknown", f"the recorder does not know {call}")


def main() -> None:
    call = [word for word in sys.argv[2:] if word != "--only-show-errors"]
    if "--cli-connect-timeout" in call:
        at = call.index("--cli-connect-timeout")
        del call[at : at + 2]
    with (ACCOUNT / "calls").open("a") as calls:
        calls.write(json.dumps({"argv": sys.argv[1:], "environ": dict(os.environ)}) + "\n")
    path = ACCOUNT / "state.json"
    state = json.loads(path.read_text())
    try:
        answer(state, call)
    finally:
        path.write_text(json.dumps(state))


if __name__ == "__main__":
    main()
