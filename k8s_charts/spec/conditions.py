"""The conditions under which settings of job.yaml count, each beside the settings that have it."""

from paddle_settings.conditions import Counts, in_file, in_group

AGENT = in_file("with `controller: job`", lambda job: job.has_agent)
OPERATOR = in_file("with `controller: paddlejob`", lambda job: not job.has_agent)
COMMAND = in_file("with `command` and `controller: job`", lambda job: job.way.command)
RESUMES = in_file(
    "with `command` and `resume` or a recipe",
    # Which recipe knows the command is seen in the program's files, which are read later.
    lambda job: job.way.command and (job.resume or (job.way.launches and job.recipe != "none")),
)
LAUNCH = in_file("with `command` and runtime launch", lambda job: job.way.launches)
RECIPE = in_file(LAUNCH.only, lambda job: LAUNCH.holds(job, job) or job.recipe == "none")
MODE = in_file("without `command`", lambda job: not job.way.launches)
SERVERS = in_file(
    "in mode parameter-server, without `command`",
    lambda job: job.mode == "parameter-server" and not job.way.launches,
)
PASSES = in_file("without `command`, whose program has its own", lambda job: not job.way.command)
SAVES = in_file(
    "without `command` and with `controller: job`, where job.run saves",
    lambda job: job.way.passes,
)
PADDLE_0X = in_file("with `runtime: paddle-0.x`", lambda job: job.way.old)
SCRAPED = in_file("with `scrape`", lambda job: job.scrape is not None)
POD_LIST = in_file("with `discovery: pod-list`", lambda job: job.discovery == "pod-list")
POD_NETWORK = in_file(
    "without `paddlejob.intranet: Host`, where no policy holds",
    lambda job: job.operator.intranet != "Host",
)
DATA_JOB = in_file("with a data job", lambda job: job.splits)
BUILT = in_file(
    "with `program.requirements` of `environment: built`", lambda job: job.builds_environment
)
LOCAL_FILE = in_file("with a local file as data.source", lambda job: job.local_file is not None)
SERVERS_GPUS = in_file(
    "with `gpus.count` and `controller: paddlejob`",
    lambda job: bool(job.gpus.count) and not job.has_agent,
)
ELASTIC = in_file("in mode collective", lambda job: job.mode == "collective")

REQUIREMENTS = in_group("with `requirements`", lambda program: bool(program.requirements))
UNSHARED = in_group("without `data.shared`, which splits nothing", lambda data: not data.shared)
UNPREPARED = in_group(
    "without `data.prepared`, where the shards are there already", lambda data: not data.prepared
)
LINES = in_group("with `format: lines`", lambda data: data.format == "lines")
GPUS = in_group("with `gpus.count`", lambda gpus: bool(gpus.count))
QUEUES = in_group("with `gang.kind` volcano or kueue", lambda gang: gang.kind != "none")
REMOVED = in_group("without `keep_finished: never`", lambda limits: limits.keep_finished is None)
ETCD = in_group("with `paddlejob.elastic`", lambda operator: operator.elastic is not None)
INSTALLED = in_group("with `install_operator`", lambda operator: operator.install_operator)


def from_(*origins: str) -> Counts:
    """Returns the condition that the program comes from one of these places."""
    return in_group(
        f"with `program.from` {_or(origins)}", lambda program: program.origin in origins
    )


def volume(*kinds: str) -> Counts:
    """Returns the condition that the volume is of one of these kinds."""
    return in_group(f"with `volume.kind` {_or(kinds)}", lambda volume: volume.kind in kinds)


def _or(names: tuple[str, ...]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
