"""How a command ends: one sentence on stderr and an exit code for scripts, never a traceback for an
error that a user can fix.

0 done; 1 the job, or a check, failed; 2 bad input; 3 the cluster or the account is unreachable or
refuses; 130 interrupted (Ctrl-C), which never ends a job.
"""

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from paddle_settings.errors import SettingError, visible

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Disk errors that no other path would avoid."""
AGAIN = "log in again (aws sso login), or take others with AWS_PROFILE"
NOT_ACCEPTED = re.compile(
    "AuthFailure|Expired|InvalidAccessKeyId|InvalidClientTokenId|RequestExpired|SignatureDoesNotMatch|UnrecognizedClient"
)
"""AWS's codes for credentials that are expired, wrong or unknown."""
NOBODY = "no AWS credentials were found: log in (aws configure, aws sso login), or set AWS_PROFILE"
AWS_SENTENCES = {
    "NoCredentialsError": NOBODY,
    "PartialCredentialsError": NOBODY,
    "TokenRetrievalError": f"the AWS login is over: {AGAIN}",
    "SSOTokenLoadError": f"the AWS login is over: {AGAIN}",
    "UnauthorizedSSOTokenError": f"the AWS login is over: {AGAIN}",
    "ProfileNotFound": "{}: set AWS_PROFILE to one of ~/.aws/config",
    "NoRegionError": "no AWS region is set: name it with --region, or set AWS_REGION",
}
"""Sentences for botocore's other errors, by the errors' names."""
EXTRAS = {"cdk8s": "submit", "constructs": "submit", "plotly": "board", "pyimport2pkg": "submit"}
"""Maps each module that the base installation leaves out to the extra of pyproject.toml that
installs it.
"""


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    INTERRUPTED = 130


class OperationError(Exception):
    """An error that ends a command; `str()` is the sentence that the user reads."""

    code = Exit.FAILED


class Failed(OperationError):
    """The job failed, or a requested action did not happen."""


class BadInput(OperationError):
    """An argument, a settings file or the current state does not allow the request."""

    code = Exit.BAD_INPUT


class Unreachable(OperationError):
    """The cluster or the AWS account does not answer, does not know the user, or refuses."""

    code = Exit.UNREACHABLE


class JobFailed(Failed):
    """The job ended without success."""


class TimedOut(Failed):
    """The awaited event has not happened in time; it may still happen."""


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turns known errors of libraries and the operating system into an OperationError; unforeseen
    errors stay as they are.
    """
    try:
        yield
    except SettingError as error:
        raise BadInput(str(error)) from error
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise BadInput(
            f"{error.name} is not installed: this command needs paddle-aws with the extra "
            f"`{EXTRAS[error.name]}`"
        ) from error
    except OSError as error:
        full = error.errno in DISK_ERRORS
        # An error on a file that is already open has no file name.
        where = error.filename or (full and "the disk, or what the output goes to,")
        if not where or error.strerror is None:
            raise
        raise (Failed if full else BadInput)(f"{where} cannot be used: {error.strerror}") from error
    except Exception as error:
        sentence = None if isinstance(error, OperationError) else _describe_aws_error(error)
        if sentence is None:
            raise
        raise Unreachable(sentence) from error


@contextmanager
def cli_errors(
    interrupted: str = "interrupted: nothing that runs on the cluster was ended",
) -> Iterator[None]:
    """Turns an exception into a sentence and an exit code, around each command; `interrupted` is
    the sentence for Ctrl-C, where a command has its own.
    """
    try:
        with translate_errors():
            yield
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        raise SystemExit(Exit.INTERRUPTED) from None
    except OperationError as error:
        print(visible(str(error)), file=sys.stderr)
        raise SystemExit(error.code) from None
    except BrokenPipeError:
        # `paddle-aws logs JOB | head`: the reader has closed the pipe.
        raise SystemExit(Exit.DONE) from None


def _describe_aws_error(error: Exception) -> str | None:
    """Returns the sentence for one of botocore's errors; None for any other error."""
    from botocore.exceptions import BotoCoreError, ClientError

    if isinstance(error, ClientError):
        code, message = (
            error.response.get("Error", {}).get(name, "") for name in ("Code", "Message")
        )
        if NOT_ACCEPTED.search(code):
            return f"AWS does not accept these credentials ({code}): {AGAIN}"
        return f"AWS refused {error.operation_name}: {code}: {message}".rstrip(": ")
    if isinstance(error, BotoCoreError):
        return AWS_SENTENCES.get(type(error).__name__, "AWS is out of reach: {}").format(error)
    return None
