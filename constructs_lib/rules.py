"""Rules that cluster.yaml's settings and the constructs share, each written once. Imports no
aws_cdk.

A rule yields a `Violation` for each value that it refuses. None means that a value is unset, or a
token that only the deploy knows: no rule refuses it.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, get_args


class Violation(NamedTuple):
    """One refused value."""

    prop: str
    """The property, such as min_size."""
    value: object
    """Its value."""
    allowed: str
    """What is allowed; `{name}` stands for another property, which the caller may know by another
    name.
    """


class Rule(Protocol):
    """Judges a property's value."""

    def __call__(self, prop: str, value: Any, /) -> Iterator[Violation]: ...


class WholeNumbers(NamedTuple):
    """The smallest and the largest number that is allowed."""

    least: int
    most: int | None = None

    def __call__(self, prop: str, value: int | None) -> Iterator[Violation]:
        """Yields a violation if `value` is outside."""
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int):
            yield Violation(prop, value, "allowed is a whole number")
        elif value < self.least or (self.most is not None and value > self.most):
            limit = (
                f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
            )
            yield Violation(prop, value, f"allowed is {limit}")


class Text(NamedTuple):
    """Text of one form, and an example of it."""

    pattern: str
    example: str

    def __call__(self, prop: str, value: str | None) -> Iterator[Violation]:
        """Yields a violation if `value` has another form."""
        if value is not None and not (isinstance(value, str) and re.search(self.pattern, value)):
            yield Violation(prop, value, f"allowed is text like {self.example}")


LogDays = Literal[
    0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922,
    3288, 3653,
]  # fmt: skip
"""Retention times that CloudWatch Logs supports, in days (its PutRetentionPolicy reference); 0:
nothing is written.
"""
KUBERNETES_VERSION = Text(r"^1\.\d{2,3}$", "1.36")
CLUSTER_NAME = Text(r"^[0-9A-Za-z][0-9A-Za-z_-]{0,99}\Z", "vision")
"""EKS's rule (its CreateCluster reference)."""
NAMESPACE = Text(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", "paddle")
SERVICE_ACCOUNT = Text(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z", "paddle-data")
PRINCIPAL = Text(
    r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/\S+\Z", "arn:aws:iam::111122223333:role/ada"
)
HOST = Text(r"^[0-9A-Za-z]([0-9A-Za-z.:-]*[0-9A-Za-z])?\Z", "db.internal")
DOCUMENT_NAME = Text(r"^[0-9A-Za-z_.-]{3,128}\Z", "vision-db")
"""Systems Manager's rule (its CreateDocument reference)."""
TAG_PATTERN = Text(r"^[0-9A-Za-z_.*-]{1,128}\Z", "used-*")
"""An image's tag, in which * stands for any text."""
FOLDER = Text(r"^/\S*\Z", "/paddle")
PORT = WholeNumbers(1, 65535)
EMAIL = r"^[^@\s]+@[^@\s.]+(\.[^@\s.]+)+$"
EMAIL_LENGTH = 50
"""AWS Budgets takes no longer address."""
EMAILS = WholeNumbers(1, 10)
"""How many addresses a budget's notification takes."""
USD = WholeNumbers(1)
DAYS = WholeNumbers(1)
"""How long objects, images and snapshots are kept."""
IMAGES = WholeNumbers(1)
POSIX_ID = WholeNumbers(1, 4294967295)
BACKUP_DAYS = WholeNumbers(0, 90)
"""How long FSx keeps daily backups."""
LUSTRE_FOLDER = Text(r"^/[^/].*$", "/bucket")
"""A folder of a file system that shows a bucket's objects."""
LUSTRE_THROUGHPUT = (125, 250, 500, 1000)
"""MB/s for each TiB of an FSx file system of type PERSISTENT_2."""


def log_days(prop: str, days: int | None, *, off: bool = False) -> Iterator[Violation]:
    """Refuses a retention time that CloudWatch Logs does not have. `off`: 0 means no log."""
    allowed = get_args(LogDays)[0 if off else 1 :]
    if days is not None and days not in allowed:
        listed = ", ".join(map(str, allowed[:-1]))
        yield Violation(prop, days, f"allowed is {listed} or {allowed[-1]} (CloudWatch Logs)")


log_days_or_none = partial(log_days, off=True)
"""0 is allowed, too: no log."""


def refuse_text(prop: str, values: object, example: str) -> Iterator[Violation]:
    """Refuses text in place of a list: Python would take it for a list of its letters."""
    if isinstance(values, str):
        yield Violation(prop, values, f"allowed is a list, such as [{example!r}]")


def refuse_empty(prop: str, values: Sequence[object], example: str) -> Iterator[Violation]:
    """Refuses a list without an entry."""
    if not len(values):
        yield Violation(prop, "empty", f"allowed is at least one, such as [{example!r}]")


def duplicates(prop: str, values: Sequence[str], what: str) -> Iterator[Violation]:
    """Refuses a list that has an entry twice."""
    if not isinstance(values, str) and len(set(values)) < len(values):
        yield Violation(prop, ", ".join(values), f"each {what} may be listed once")


def addresses(prop: str, emails: Sequence[str], count: int) -> Iterator[Violation]:
    """Refuses e-mail addresses that AWS Budgets does not accept. `count`: how many there are, with
    those that only the deploy knows.
    """
    if any(EMAILS(prop, count)):
        allowed = f"allowed are {EMAILS.least} to {EMAILS.most} addresses"
        yield Violation(prop, f"a list of {count}", allowed)
    for email in emails:
        if len(email) > EMAIL_LENGTH or not re.search(EMAIL, email):
            yield Violation(
                prop, email, f"allowed is an address like a@example.com, up to {EMAIL_LENGTH} long"
            )
    yield from duplicates(prop, emails, "address")


def nat_count(gateways: int | None, zones: int) -> Iterator[Violation]:
    """Refuses any number of NAT gateways but 0, 1 and one for each zone."""
    if gateways is not None and gateways not in (0, 1, zones):
        allowed = f"allowed is 0, 1, or {zones} (one for each of {{availability_zones}})"
        yield Violation("nat_gateways", gateways, allowed)


def lustre_capacity(prop: str, gib: int | None) -> Iterator[Violation]:
    """Refuses a size that FSx for Lustre, type PERSISTENT_2 with SSDs, does not have."""
    if gib is not None and gib != 1200 and (gib < 2400 or gib % 2400):
        yield Violation(prop, gib, "allowed is 1200, or a multiple of 2400")


def lustre_throughput(prop: str, rate: int | None) -> Iterator[Violation]:
    """Refuses a throughput that FSx for Lustre, type PERSISTENT_2, does not have."""
    if rate is not None and rate not in LUSTRE_THROUGHPUT:
        allowed = ", ".join(map(str, LUSTRE_THROUGHPUT[:-1]))
        yield Violation(prop, rate, f"allowed is {allowed} or {LUSTRE_THROUGHPUT[-1]}")
