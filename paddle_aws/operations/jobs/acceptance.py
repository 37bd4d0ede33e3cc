"""One acceptance: a small cluster of its own name is made in an account, trains a job through the
loss of a pod, and is destroyed, whatever happened before. A receipt says what each step saw.

Promises: every step is the command of docs/learn/first-day-on-aws.md, as a person types it. What
was there before is not touched. The receipt holds no account's number, nobody's name and no
address, so that it may be published.
"""

import json
import os
import platform
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from paddle_aws.operations.account.aws import list_all
from paddle_aws.operations.account.cluster_account import ClusterAccount
from paddle_aws.operations.account.cost_items import HOURS, LEFT_OUT, estimate, items
from paddle_aws.operations.account.locks.lock_file import read_prices
from paddle_aws.operations.account.person import Person
from paddle_aws.operations.errors import BadInput, Failed, TimedOut, Unreachable, translate_errors
from paddle_aws.operations.jobs.objects.job_objects import pods
from paddle_aws.operations.jobs.run import Run
from paddle_aws.stacks.cluster_spec import ClusterSpec, load_cluster

NAME = "acceptance"
"""Of the cluster and of its job."""
MACHINE, GPU_MACHINE = "m5.large", "g4dn.xlarge"
PASSES = 40
"""Enough for a pod to be killed while they are trained."""
TO_DESTROY = 0.75
"""Hours that a destroy may take, whose dollars are kept back."""
LEAST = 0.75
"""Hours that the work needs before it, most of them for EKS."""
MOST = 1000
"""Dollars that --max-usd may name."""
DESTROYS = 3
"""Tries: AWS gives network interfaces back a while after their owners are gone."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

PRIVATE = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"\barn:[\w-]+:[^\s'\"`,;)\]]+", "ARN"),
        (r"[\w.+%-]+@[\w-]+(\.[\w-]+)+", "EMAIL"),
        (r"[\w.-]+\.(amazonaws\.com|api\.aws|on\.aws)\b[^\s'\"`,;)\]]*", "HOST"),
        (r"(file://|(?<![\w./~]))~?/[\w.@+-][^\s'\"`,;:)\]]*", "PATH"),
        (r"(?<!\d)\d{1,3}([.-]\d{1,3}){3}(?!\d)", "ADDRESS"),
        (r"(?<![\w:.])([0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])", "ADDRESS"),
        (r"(?<!\d)\d{12}(?!\d)", "ACCOUNT"),
    )
)
"""What a receipt does not hold, and the word instead."""

Seen = dict[str, Any]


def settings(region: str, reachable_from: str, *, gpu: bool) -> Seen:
    """Returns the cluster's settings."""
    zones = [f"{region}a", f"{region}b"]
    group = {"min": 2, "desired": 2, "max": 2, "availability_zones": zones[:1]}
    nodes: Seen = {"workers": {"instance_types": [MACHINE], **group}}
    if gpu:
        one = {"min": 1, "desired": 1, "max": 1, "gpu": True}
        nodes["gpus"] = {"instance_types": [GPU_MACHINE], **group, **one}
    return {
        "name": NAME,
        "region": region,
        "owner": NAME,
        "retain": False,
        "network": {"availability_zones": zones},
        "cluster": {"public_access_from": [reachable_from], "tunnel": False},
        "nodes": nodes,
    }


class Acceptance:
    """One acceptance in a new folder, which gets all files: settings, log, model, receipt."""

    def __init__(
        self, person: Person, config: Path, prices: Path, max_usd: float, base: str | None = None
    ) -> None:
        """Reads settings and prices. `base`: of an image with CUDA. Raises BadInput if the cluster
        is there already, or `max_usd` does not pay for it.
        """
        self.person, self.folder, self._config, self._base = person, config.parent, config, base
        self._spec: ClusterSpec = load_cluster(config)
        self._account = ClusterAccount(self._spec)
        locked = read_prices(prices, self._spec.region)
        rows = estimate(items(self._spec), locked["prices"], 1)
        if unknown := [row["what"] for row in rows if row["month_usd"] is None]:
            raise BadInput(
                f"{prices} has no price of {', '.join(unknown)}: without it nobody knows when "
                "--max-usd is reached"
            )
        self._an_hour, self._max_usd = sum(row["month_usd"] for row in rows) / HOURS, max_usd
        least = self._an_hour * (LEAST + TO_DESTROY)
        if not least <= max_usd <= MOST:
            raise BadInput(
                f"--max-usd is {max_usd:g}: allowed is {least:.2f} to {MOST}, because the cluster "
                f"costs {self._an_hour:.2f} an hour and takes {60 * LEAST:.0f} minutes to make and "
                f"up to {60 * TO_DESTROY:.0f} to destroy"
            )
        self._refuse_another()
        identity = self._account.identity
        self._caller = identity["Arn"].split(":", 5)[-1]
        # Each command refuses other credentials from here on.
        config.write_text(f"{config.read_text()}account: '{identity['Account']}'\n")
        self._had_bootstrap = bool(self._find_bootstrap())
        self._steps: list[Seen] = []
        self._paid_from: float | None = None
        self.why = ""
        """Why it did not pass, in full; the receipt has the first line."""
        self._prices = {name: locked[name] for name in ("read", "source")}

    def _refuse_another(self) -> None:
        if stacks := [one["StackName"] for one in ClusterAccount(self._spec).deployed_stacks]:
            raise BadInput(
                f"{', '.join(stacks)} of {self._spec.region} belong to an acceptance that runs, or "
                "was killed: `cdk destroy --all --context config=cluster.yaml` ends that, with the "
                "cluster.yaml of that run's folder"
            )

    def run(self, say: Callable[[str], None]) -> Seen:
        """Takes all steps, the destroy in any case, and writes receipt.json. Returns the
        receipt.
        """
        began, result, say = datetime.now(UTC), "passed", quiet(say)
        problems: list[BaseException | str] = []
        # What `nohup` ignores stays ignored.
        heard = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]

        def wait(*_: Any) -> None:
            say("the cluster is being destroyed: wait")

        def interrupt(*_: Any) -> None:
            for number in heard:  # No second one interrupts what ends it.
                signal.signal(number, wait)
            raise KeyboardInterrupt

        say(f"if this is killed, {self._by_hand}")
        handlers = [signal.signal(number, interrupt) for number in heard]
        try:
            try:
                for name, step in self._work().items():
                    self._take(name, step, say)
            finally:
                for number in heard:
                    signal.signal(number, wait)
        except TimedOut:
            result, problems = "stopped", [f"--max-usd is {self._max_usd:g}: its share is spent"]
        except KeyboardInterrupt:
            result = "interrupted"
            problems = [result]
        except Exception as error:  # Also one that nobody foresaw: what is there costs money.
            result, problems = "failed", [error]
        self.person.deadline = None
        if left := self._take_end(say):
            result, problems = "failed", [*problems, *left, self._by_hand]
        self.why = "\n".join(map(_sentence, problems))
        emulated = any(name.startswith("AWS_ENDPOINT_URL") for name in os.environ)
        receipt = {
            "result": result,
            "why": self._anonymous("\n".join(map(_first_line, problems))),
            "account": "emulated" if emulated else "AWS",
            "region": self._spec.region,
            "began": began.isoformat(timespec="seconds"),
            "seconds": round(sum(step["seconds"] for step in self._steps), 1),
            "usd": {
                "spent": round(self._spent(), 4),
                "an_hour": round(self._an_hour, 4),
                "at_most": self._max_usd,
                "prices": self._prices,
                "left_out": LEFT_OUT,
            },
            "versions": self._versions(),
            "nodes": yaml.safe_load(self._config.read_text())["nodes"],
            "steps": self._steps,
        }
        try:
            (self.folder / "receipt.json").write_text(json.dumps(receipt, indent=1) + "\n")
        except OSError as error:
            receipt["result"] = "failed"
            self.why = "\n".join(filter(None, (self.why, f"no receipt was written: {error}")))
        for number, handler in zip(heard, handlers, strict=True):
            signal.signal(number, handler)
        return receipt

    def _take_end(self, say: Callable[[str], None]) -> list[Exception]:
        """Takes the steps that end it. Returns what failed."""
        failed = list[Exception]()
        for name, step in self._end().items():
            try:
                self._take(name, step, say)
            except Exception as error:
                failed.append(error)
                if name == "destroy":
                    break  # A later one needs the bootstrap.
        return failed

    def _take(self, name: str, step: Callable[[], Seen], say: Callable[[str], None]) -> None:
        began, taken = time.monotonic(), dict[str, Any](step=name)
        self._steps.append(taken)
        try:
            with translate_errors():
                taken["saw"] = step()
        except BaseException as error:
            taken["failed"] = self._anonymous(_first_line(error))
            raise
        finally:
            taken["seconds"] = round(time.monotonic() - began, 1)
            mark = "✗" if "failed" in taken else "✓"
            saw = ", ".join(f"{what} {value}" for what, value in taken.get("saw", {}).items())
            say(f"{mark} {name:<12} {taken['seconds']:>7.1f} s  {saw}")

    def _work(self) -> Mapping[str, Callable[[], Seen]]:
        """Returns what is done, by name, in the order of the page."""
        return {
            "bootstrap": self._bootstrap,
            "doctor": self._doctor,
            "deploy": self._deploy,
            "image": self._image,
            "kubeconfig": self._kubeconfig,
            "setup": self._setup,
            "submit": self._submit,
            "kill a pod": self._kill,
            "train on": self._train_on,
            "measure": self._measure,
            "model": self._model,
        }

    def _end(self) -> Mapping[str, Callable[[], Seen]]:
        """Returns what ends it; a step that fails ends no later one's means."""
        end = {} if self._had_bootstrap else {"no bootstrap": self._end_bootstrap}
        if self._paid_from is None:
            return end
        return {"destroy": self._destroy, "leftovers": self._leftovers} | end

    @property
    def _by_hand(self) -> str:
        return (
            f"end it by hand: `cdk destroy --all --context config={self._config}`, then "
            f"`paddle-aws leftovers {self._config}`"
            + ("" if self._had_bootstrap else f", then delete {self._toolkit} and its bucket")
        )

    @property
    def _toolkit(self) -> str:
        """The stack of this cluster's bootstrap."""
        return f"CDKToolkit-{self._spec.qualifier}"

    # The work.

    def _bootstrap(self) -> Seen:
        if self._had_bootstrap:
            return {"was": "there"}
        self.person.bootstrap(self._config)
        return {}

    def _doctor(self) -> Seen:
        found = self._json("doctor", str(self._config))
        states = [finding["state"] for finding in found]
        return {state: states.count(state) for state in ("ok", "warning")}

    def _deploy(self) -> Seen:
        try:
            self._refuse_another()
        except BadInput:
            self._had_bootstrap = True  # The other one's cluster needs it.
            raise
        self._paid_from = time.monotonic()
        hours = self._max_usd / self._an_hour - TO_DESTROY
        self.person.deadline = self._paid_from + 3600 * hours
        self.person.deploy(self._config, self.folder / "outputs.json")
        stacks = json.loads((self.folder / "outputs.json").read_text())
        return {"stacks": len(stacks), "resources": sum(len(self._parts(name)) for name in stacks)}

    def _image(self) -> Seen:
        lock, base = "trainer_image/requirements-gpu.lock", self._base
        words = ["--requirements", lock, "--base", base] if base else []
        self.person.python("make image", "operations.images.image", "build", *words)
        self.person.python("make push", "operations.images.image", "push", *self._files())
        image = json.loads((self.folder / "image.json").read_text())["image"]
        return {"digest": image.rpartition("@")[2]}

    def _kubeconfig(self) -> Seen:
        os.environ["KUBECONFIG"] = str(self.folder / "kubeconfig")
        self.person.paddle_aws("kubeconfig", str(self._config))
        version = Run.find(NAME).cluster.get("/version")
        return {"kubernetes": version.get("gitVersion", "")}

    def _setup(self) -> Seen:
        said = self.person.paddle_aws("setup", str(self._config), *self._files())
        applied = [line for line in said if line.startswith("applied ")]
        gpus = [line for line in said if line.startswith("GPUs of ")]
        return {"applied": len(applied)} | ({"gpus": self._anonymous(gpus[-1])} if gpus else {})

    def _submit(self) -> Seen:
        data = self.person.project / "examples" / "quick_start" / "sample.tsv"
        job = {
            "name": NAME,
            "trainers": 2,
            "passes": PASSES,
            "program": {"folder": "quick_start"},
            "data": {"source": str(data), "hold_out": 0.1},
            "resources": {"cpu": "500m", "memory": "1536Mi"},
            "data_resources": {"cpu": "250m", "memory": "512Mi"},
        }
        file = self.folder / "job.yaml"
        file.write_text(yaml.safe_dump(job, sort_keys=False))
        self.person.paddle_aws("submit", str(file), "--no-try", *self._files())
        return {"trainers": job["trainers"], "passes": job["passes"]}

    def _kill(self) -> Seen:
        """Deletes a trainer's pod once a pass is complete."""
        job = Run.find(NAME)
        while True:
            view = job.status()
            if view.phase in ("done", "failed", "cancelled"):
                raise Failed(f"the job is {view.phase} before a pod was killed: {view.reason}")
            running = [pod for pod in view.pods if pod.rank == 1 and pod.phase == "running"]
            at = view.progress and view.progress.pass_number
            if at and running:
                break
            if time.monotonic() > (self.person.deadline or 0):
                raise TimedOut("no pass was complete in time")
            time.sleep(0.2)
        job.cluster.delete(f"{pods(job.namespace)}/{running[0].name}")
        return {"rank": running[0].rank, "in_pass": at}

    def _train_on(self) -> Seen:
        self.person.paddle_aws("wait", NAME)
        view = Run.find(NAME).status()
        passes = self._json("results", NAME)["passes"]
        attempt = view.progress.attempt if view.progress else 0
        if attempt < 2 or len(passes) != PASSES or not all(one["complete"] for one in passes):
            raise Failed(
                f"{len(passes)} passes in {attempt} attempts: the job did not resume after its pod "
                "was killed"
            )
        return {"passes": len(passes), "attempts": attempt, "lost_pods": view.lost}

    def _measure(self) -> Seen:
        found = self._json("evaluate", NAME)
        if not found["better"]:
            raise Failed(f"{found['metric']} {found['value']:.3f}: no better than a constant guess")
        return {found["metric"]: round(found["value"], 4), "baseline": round(found["baseline"], 4)}

    def _model(self) -> Seen:
        to = self.folder / "models"
        self.person.paddle_aws("results", NAME, "--model", "--to", str(to))
        files = [file for file in to.rglob("*") if file.is_file()]
        return {"files": len(files), "bytes": sum(file.stat().st_size for file in files)}

    # The end.

    def _destroy(self) -> Seen:
        for tries in range(1, DESTROYS + 1):
            try:
                self.person.destroy(self._config)
                break
            except Failed:
                if tries == DESTROYS:
                    raise
                time.sleep(30)
        return {"tries": tries}

    def _leftovers(self) -> Seen:
        """Deletes the log group that EKS makes again while a cluster ends; asks what is left."""
        logs = self._account.client("logs")
        group = f"/aws/eks/{self._spec.cluster_name}/cluster"
        again = logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]
        for found in again:
            logs.delete_log_group(logGroupName=found["logGroupName"])
        left = self._json("leftovers", str(self._config))
        kept = {self._anonymous(f"{one['service']}: {one['expected']}") for one in left["left"]}
        return {"log_groups_that_came_back": len(again), "kept": sorted(kept)}

    def _parts(self, stack: str) -> list[Seen]:
        """Returns the resources of a stack."""
        api, what = self._account.client("cloudformation"), "StackResourceSummaries[]"
        return list(list_all(api, "list_stack_resources", what, StackName=stack))

    def _find_bootstrap(self) -> str:
        """Returns the name of the stack of this cluster's bootstrap; empty if there is none."""
        name = self._toolkit
        stacks = list_all(self._account.client("cloudformation"), "describe_stacks", "Stacks[]")
        return name if name in [stack["StackName"] for stack in stacks] else ""

    def _end_bootstrap(self) -> Seen:
        """Deletes this cluster's own bootstrap, whose bucket the CDK keeps."""
        import boto3

        if not (stack := self._find_bootstrap()):
            return {}
        api, parts = self._account.client("cloudformation"), self._parts(stack)
        s3 = boto3.resource("s3", region_name=self._spec.region)
        kept = [one for one in parts if one["ResourceType"] == "AWS::S3::Bucket"]
        buckets = [s3.Bucket(one["PhysicalResourceId"]) for one in kept]
        for bucket in buckets:
            bucket.object_versions.delete()
        api.delete_stack(StackName=stack)
        waiter = api.get_waiter("stack_delete_complete")
        waiter.wait(StackName=stack, WaiterConfig={"Delay": 5, "MaxAttempts": 120})
        for bucket in buckets:
            if bucket.creation_date is not None:
                bucket.delete()
        return {"resources": len(parts)}

    # What the steps use.

    def _files(self) -> list[str]:
        names = {"--outputs": "outputs.json", "--image-file": "image.json"}
        return [word for name, file in names.items() for word in (name, str(self.folder / file))]

    def _json(self, command: str, *arguments: str) -> Any:
        """Runs a command with --json; its messages stand before and after the document."""
        lines = self.person.paddle_aws(command, *arguments, "--json")
        begin = next(number for number, line in enumerate(lines) if line in ("{", "["))
        end = lines.index({"{": "}", "[": "]"}[lines[begin]], begin)
        return json.loads("\n".join(lines[begin : end + 1]))

    def _spent(self) -> float:
        began = self._paid_from
        return 0.0 if began is None else self._an_hour * (time.monotonic() - began) / 3600

    def _versions(self) -> dict[str, str]:
        names = ("paddle-aws", "aws-cdk-lib", "boto3")
        return {name: version(name) for name in names} | {
            "python": platform.python_version(),
            "cluster": self._spec.cluster.version,
        }

    def _anonymous(self, text: str) -> str:
        """Returns the text without account numbers, people's names, addresses and this machine's
        folders.
        """
        for folder, word in ((self.folder, "FOLDER"), (self.person.project, ".")):
            text = text.replace(f"{folder}/", f"{word}/")
        for pattern, word in PRIVATE:
            text = pattern.sub(word, text)
        for name in (self._caller, *self._caller.split("/")[1:]):
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "CALLER", text, flags=re.I)
        return text


def _sentence(error: BaseException | str) -> str:
    return str(error).strip() or type(error).__name__


def _first_line(error: BaseException | str) -> str:
    return _sentence(error).splitlines()[0]


def quiet(say: Callable[[str], None]) -> Callable[[str], None]:
    """Returns a `say` that never raises (closed terminal, full disk, a signal's while one prints):
    nothing that prints may keep a cluster from being destroyed.
    """

    def said(line: str) -> None:
        with suppress(Exception):
            say(line)

    return said


@contextmanager
def logged(file: Path) -> Iterator[Callable[[str], None]]:
    """Writes a command's lines to a file, each at once, while the disk takes them."""
    log = file.open("w", buffering=1)
    try:
        yield quiet(lambda line: print(line, file=log))
    finally:
        with suppress(OSError):
            log.close()


def own_address() -> str:
    """Returns this machine's public address as AWS sees it. Raises Unreachable."""
    from urllib.request import urlopen

    try:
        with urlopen("https://checkip.amazonaws.com", timeout=10) as answer:
            return f"{answer.read().decode().strip()}/32"
    except OSError as error:
        raise Unreachable(
            f"checkip.amazonaws.com does not say this machine's address ({error}): name it with "
            "--from"
        ) from None
