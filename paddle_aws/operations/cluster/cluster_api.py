"""A cluster's API: the official client's credentials and TLS, urllib3's retries, and one sentence
for an error that no retry fixes.

No client library alone keeps our promises: the official one keeps using an expired token and loses
the text of an error; lightkube does not retry after 429 and 5xx, and lacks tls-server-name, which
our tunnel needs. No message holds a credential.
"""

import contextlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError, SSLError

from paddle_aws.operations.cluster import reasons
from paddle_aws.operations.errors import BadInput, OperationError, Unreachable

Object = dict[str, Any]

FIELD_MANAGER = "paddle-aws"
"""The owner of the fields that server-side apply sets."""
TRIES = 6
"""Number of attempts before a request counts as failed."""
FIRST_PAUSE = 0.25
"""Seconds before the second attempt, doubled before each further one, unless the server sets the
pause.
"""
LONGEST_SERVER_PAUSE = 60
"""The longest pause in seconds that a server may ask for."""
OUTAGE_LIMIT = 600.0
"""Seconds for which a server may be unreachable before a command that follows a job gives up."""
REPORT_AFTER = 5.0
"""Seconds after which a delay is reported."""
REOPEN_PAUSE = 0.2
"""Seconds before a stream that was cut off is reopened."""
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 60.0
"""Timeouts in seconds for a connection, and for an answer's next byte."""
TRANSIENT = (429, 500, 502, 503, 504)
"""Status codes that a retry may change."""
NOT_ABOUT_RIGHTS = (
    r"exceeded quota|failed quota|being terminated|violates PodSecurity|admission webhook|usage per"
)
"""What a 403 says if the cluster refuses the object, not the user."""
ADMISSION_ADVICE = "the role or user has to be among cluster.yaml's administrators or deployers"
CONTEXT_MARK = "paddle-aws"
"""The extension by which `paddle-aws kubeconfig` marks the contexts that it writes."""
_AWS = re.compile(r"\.amazonaws\.com(\.cn)?$|\.api\.aws$|^arn:aws")
"""The name of an EKS endpoint, or of the context that the aws CLI writes for it."""


class ApiError(OperationError):
    """An error answer that no retry changes."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"the cluster answered {status} {reason}: {message}")
        self.status, self.message = status, message


class NotInstalled(BadInput):
    """The cluster does not know the kind of object."""


class StreamLost(Unreachable):
    """A stream broke off before its end."""


class ClusterApi:
    """The API of one cluster, as a kubeconfig's context describes it."""

    def __init__(
        self, context: str | None = None, say: Callable[[str], None] = lambda text: None
    ) -> None:
        """Uses the named context, or the current one, of $KUBECONFIG or ~/.kube/config."""
        self.say, self._context, self._client = say, context, _client(context)
        self.name = context or _entry(context).get("name") or self.server
        self.aws = _in_aws(self._client, context)
        """Whether it is known to run in AWS, because advice about AWS helps only there."""
        self.outage_reported = False
        """Whether the user has been told that the server does not answer."""
        self._lock = threading.Lock()
        self._plurals: dict[str, dict[str, tuple[str, bool]]] = {}

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self._client.configuration.host)

    # Documents.

    def get(self, path: str, **query: str) -> Object:
        """Returns the document at `path`."""
        return dict(json.loads(self.request("GET", path, query=query).data))

    def find(self, path: str, **query: str) -> Object | None:
        """Returns the document at `path`; None if there is none."""
        try:
            return self.get(path, **query)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str, labels: str = "", fields: str = "") -> list[Object]:
        """Returns the items of a collection; none if the cluster does not know their kind."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        query = {name: value for name, value in query.items() if value}
        return list((self.find(path, **query) or {"items": []})["items"])

    def path(self, document: Mapping[str, Any]) -> str:
        """Returns a document's API path. Raises NotInstalled if the cluster does not know its
        kind.
        """
        version, kind = document["apiVersion"], document["kind"]
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        # A missing kind may have been defined since.
        if kind not in self._plurals.get(version, {}):
            listing = self.find(base) or {}
            self._plurals[version] = {
                resource["kind"]: (resource["name"], resource["namespaced"])
                for resource in listing.get("resources", ())
                if "/" not in resource["name"]
            }
        if kind not in self._plurals[version]:
            advice = "install what defines it first, or take another setting in job.yaml"
            advice = reasons.first_sentence("unknown_kind", version, advice, aws=self.aws)
            raise NotInstalled(f"{kind} ({version}) is unknown to cluster {self.name}: {advice}")
        plural, namespaced = self._plurals[version][kind]
        metadata = document["metadata"]
        place = f"/namespaces/{metadata['namespace']}" if namespaced else ""
        return f"{base}{place}/{plural}/{quote(metadata['name'], safe='')}"

    def apply(self, document: Object, *, dry_run: bool = False) -> None:
        """Applies a document server-side. Raises BadInput if somebody else owns a field that would
        change.
        """
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        what = f"{document['kind']} {document['metadata']['name']}"
        try:
            self._send("PATCH", self.path(document), "apply-patch+yaml", document, query)
        except ApiError as error:
            if error.status == 409:
                advice = "undo that, or delete the object"
                # Deleting the definition would delete all jobs of this kind in the cluster.
                if document["kind"] == "CustomResourceDefinition":
                    advice = (
                        "it belongs to another installation; set paddlejob.install_operator: "
                        "false in job.yaml"
                    )
                raise BadInput(
                    f"{what} was changed by somebody else ({error.message}): {advice}, and "
                    "submit again"
                ) from None
            if error.status in (400, 422):
                raise BadInput(f"the cluster refuses {what}: {error.message}") from None
            raise

    def annotate(self, path: str, name: str, value: str) -> None:
        """Adds an annotation to an object, and changes nothing else of it."""
        body = {"metadata": {"annotations": {name: value}}}
        self._send("PATCH", path, "merge-patch+json", body, {"fieldManager": FIELD_MANAGER})

    def delete(self, path: str) -> bool:
        """Deletes an object after everything that it owns, a Job after its pods; returns False if
        it does not exist.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
        try:
            self._send("DELETE", path, "json", body, {})
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    # Requests.

    def _send(
        self, method: str, path: str, kind: str, document: Object, query: Mapping[str, str]
    ) -> None:
        headers, body = {"Content-Type": f"application/{kind}"}, json.dumps(document).encode()
        self.request(method, path, query=query, headers=headers, body=body)

    def lines(
        self, path: str, query: Mapping[str, str], read: float | None = None
    ) -> Iterator[bytes]:
        """Yields the whole lines of a stream as they arrive. Raises Lost if the connection breaks
        before the stream's end.
        """
        answer = self.request("GET", path, query=query, read=read, preload_content=False)
        try:
            for line in answer:
                yield line.rstrip(b"\n")
        except (HTTPError, OSError) as error:
            raise StreamLost(str(self._describe_outage(error))) from None
        finally:
            with contextlib.suppress(Exception):
                answer.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        tries: int = TRIES,
        read: float | None = None,
        **more: Any,
    ) -> urllib3.BaseHTTPResponse:
        """Returns an answer with a status below 300. Retries any method after a transient fault:
        all our requests are idempotent.

        `read`: timeout in seconds for the next byte, READ by default; `more` goes to urllib3.
        """
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        retry = urllib3.Retry(
            tries - 1,
            other=0,  # An untrusted certificate stays untrusted.
            allowed_methods=None,
            status_forcelist=TRANSIENT,
            raise_on_status=False,
            backoff_factor=FIRST_PAUSE,
            backoff_jitter=FIRST_PAUSE,
            retry_after_max=LONGEST_SERVER_PAUSE,
        )
        more |= {
            "retries": retry,
            "timeout": urllib3.Timeout(connect=CONNECT_TIMEOUT, read=read or READ_TIMEOUT),
            "redirect": False,
        }
        for renewed in (False, True):
            client = self._client
            sent = {"Accept": "application/json", "Accept-Encoding": "gzip"}
            sent |= {"User-Agent": "paddle-aws", **(headers or {})}
            if bearer := client.configuration.auth_settings().get("BearerToken"):
                sent[bearer["key"]] = bearer["value"]
            try:
                answer: urllib3.BaseHTTPResponse = client.rest_client.pool_manager.request(
                    method, url, headers=sent, **more
                )
            except MaxRetryError as error:
                raise self._describe_outage(error.reason) from None
            if answer.status < 300:
                return answer
            if answer.status != 401 or renewed:
                raise self._refusal(answer)
            # A token is valid for minutes: a new client asks the credential program for the next
            # one.
            with self._lock:
                if self._client is client:
                    self._client = _client(self._context)
        raise AssertionError("unreachable")

    def _describe_outage(self, reason: Exception | None) -> Unreachable:
        where = f"cluster {self.name} ({self.server})"
        if isinstance(reason, SSLError):
            return Unreachable(f"{where} shows a certificate that is not trusted: {reason}")
        if isinstance(reason, ProtocolError):
            return Unreachable(f"{where} breaks off its answers: {reason}")
        advice = "does it run, and can this machine's network reach it?"
        if self.aws:
            advice = (
                "a private endpoint is reachable only from its VPC; cluster.yaml's "
                "cluster.public_access_from opens it to your address"
            )
        return Unreachable(f"{where} cannot be reached ({type(reason).__name__}): {advice}")

    def _refusal(self, answer: Any) -> OperationError:
        text, status = "", None
        with contextlib.suppress(HTTPError, OSError, ValueError):
            text = bytes(answer.data).decode(errors="replace")
            status = json.loads(text)
        status = status if isinstance(status, dict) else {}
        message = str(status.get("message") or text[:300] or answer.reason)
        if answer.status == 401:
            advice = "renew your credential in the kubeconfig"
            if self.aws:
                advice = (
                    "log in to AWS again, or let `paddle-aws kubeconfig` rewrite the entry; "
                    f"{ADMISSION_ADVICE}"
                )
            return Unreachable(f"cluster {self.name} does not know you (401): {advice}")
        if answer.status == 403:
            advice = ADMISSION_ADVICE if self.aws else "its administrator grants that right"
            if re.search(NOT_ABOUT_RIGHTS, message):
                return Unreachable(f"cluster {self.name} refuses (403): {message}")
            return Unreachable(f"cluster {self.name} refuses (403): {message}; {advice}")
        if answer.status in TRANSIENT:
            return Unreachable(f"cluster {self.name} keeps answering {answer.status}: {message}")
        return ApiError(answer.status, str(status.get("reason") or answer.reason), message)


class Outage:
    """Lets a follower wait while the server is unreachable: OUTAGE seconds from the first failure
    after the last answer.
    """

    def __init__(self, cluster: ClusterApi) -> None:
        self._cluster, self._since = cluster, 0.0

    def end(self) -> None:
        """Call when the server has answered: ends the outage."""
        self._since, self._cluster.outage_reported = 0.0, False

    def wait(self, error: Exception) -> None:
        """Pauses. Raises an error that waiting does not fix, or that has lasted too long."""
        now = time.monotonic()
        self._since = self._since or now
        if not isinstance(error, Unreachable) or now - self._since > OUTAGE_LIMIT:
            raise error
        if now - self._since > REPORT_AFTER and not self._cluster.outage_reported:
            self._cluster.outage_reported = True
            self._cluster.say(f"{error}; waiting for it, up to {OUTAGE_LIMIT / 60:.0f} minutes")
        time.sleep(REOPEN_PAUSE)


def _client(context: str | None) -> Any:
    """Returns a new client for a kubeconfig's context. Raises Unreachable."""
    import yaml
    from kubernetes import config
    from kubernetes.config.config_exception import ConfigException

    # The client only logs a failed credential program, in words that repeat the program's output.
    messages, root = BufferingHandler(capacity=1000), logging.getLogger()
    messages.setLevel(logging.ERROR)
    root.addHandler(messages)
    try:
        client = config.new_client_from_config(
            config_file=kubeconfig(), context=context, persist_config=False
        )
    except ConfigException as error:
        if not any(Path(file).expanduser().exists() for file in kubeconfig().split(os.pathsep)):
            raise Unreachable(
                f"there is no kubeconfig {kubeconfig()}: name your cluster's with KUBECONFIG, or "
                "let `paddle-aws kubeconfig` write one for the deployed cluster"
            ) from None
        fault = f"has no context {context}" if context else "cannot be used"
        # From the first brace on, the message repeats an entry, which may hold a token.
        why = str(error).partition("{")[0]
        raise Unreachable(
            f"the kubeconfig {fault} ({why}): `paddle-aws kubeconfig` writes one for the "
            "deployed cluster"
        ) from None
    except (OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError):
        # Without the parser's words: they repeat the line that it could not parse.
        raise Unreachable(
            f"{kubeconfig()} is not a kubeconfig: name another with KUBECONFIG, or move it away "
            "and let `paddle-aws kubeconfig` write one"
        ) from None
    finally:
        root.removeHandler(messages)
    if messages.buffer:
        advice = "run it by hand to see why not"
        if _in_aws(client, context):
            advice = (
                f"log in to AWS again (aws sso login), or {advice}; for EKS install the aws CLI "
                "and run `paddle-aws kubeconfig`"
            )
        raise Unreachable(
            f"the program that the kubeconfig names for your credential gave none: {advice}"
        )
    if not str(client.configuration.host).startswith(("https://", "http://")):
        raise Unreachable(
            f"the kubeconfig's server is {client.configuration.host}: it has to begin with https://"
        )
    return client


def kubeconfig() -> str:
    """Returns $KUBECONFIG, one file or several, else ~/.kube/config. Read at each call: the
    official client keeps its first.
    """
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def _entry(context: str | None) -> Mapping[str, Any]:
    """Returns the kubeconfig's entry of a context, or the current one; empty: unreadable."""
    from kubernetes import config

    with contextlib.suppress(Exception):
        contexts, current = config.list_kube_config_contexts(kubeconfig())
        return next((entry for entry in contexts if entry["name"] == context), current)
    return {}


def _in_aws(client: Any, context: str | None) -> bool:
    entry, settings = _entry(context), client.configuration
    names = (urlsplit(settings.host).hostname, settings.tls_server_name, entry.get("name"))
    marks = entry.get("context", {}).get("extensions") or ()
    return any(_AWS.search(name or "") for name in names) or any(
        mark.get("name") == CONTEXT_MARK for mark in marks
    )
