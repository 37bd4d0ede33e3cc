"""What uv says when requirements cannot be installed, as one sentence that a user can act on."""

import re
from collections.abc import Sequence

from paddle_node.contract import ExitCode
from paddle_node.failure import BadSetting, Failure

_BUILD_OUTPUT = re.compile(r"^ *\[std(?:out|err)\]\n((?: {9}.*\n|\s*\n)*)", re.MULTILINE)
"""What a package's own code said while it was built: uv indents every line of it."""
_UNREACHABLE = re.compile(
    r"\b(?:dns error|tcp connect error|client error \(Connect\)|operation timed out|connection "
    r"(?:reset|closed|error)|server error \(5\d\d[^)]*\)|client error \(4(?:08|29)[^)]*\)"
    r"|error (?:sending request|decoding response body))[^\n]*"
)
_CAUSE = re.compile(r"^  cause: ((?:.+\n?)(?:^ {9}.*\n?)*)", re.MULTILINE)


def explain(messages: str, paddle: str, limits: Sequence[str] = ()) -> Failure:
    """Returns the failure for uv's messages; `paddle`: the image's, as a requirement; `limits`: the
    image's own beside it.
    """
    outputs = _BUILD_OUTPUT.findall(messages)
    said = _BUILD_OUTPUT.sub("", messages)
    if re.search(r"os error (?:28|122)\b", said):
        return BadSetting(
            "the pod's scratch has no room for program.requirements: raise data_resources.scratch"
        )
    if "invalid peer certificate" in said:
        return BadSetting(
            "the package index has a certificate that the image does not trust: set an `image` "
            "that trusts its authority, or another program.index"
        )
    if refused := re.search(r"\((40[137])\b", said):
        return BadSetting(
            f"the package index answers {refused[1]}: check the user and password in the Secret of "
            "program.index.secret; a rehearsal has them from your own PIP_INDEX_URL or ~/.netrc"
        )
    if (match := _UNREACHABLE.search(said)) and not outputs:
        return Failure(
            ExitCode.SOURCE_UNREACHABLE,
            f"the package index cannot be reached ({match[0].strip()}): another try may help; "
            "program.index and program.wheels name other places",
        )
    return BadSetting(_explain_requirements(said, outputs, paddle, limits))


def _explain_requirements(said: str, outputs: list[str], paddle: str, limits: Sequence[str]) -> str:
    *_, error = re.findall(r"^(?:error|  ×): (.+)$", said, re.MULTILINE) or [said.strip()[-300:]]
    causes = [" ".join(cause.split()) for cause in _CAUSE.findall(said)]
    cause = causes[-1] if causes else error
    package, *_ = [*re.findall(r"`([^`]+)`", error), "a package"]
    if outputs:
        *_, reason = ["nothing", *filter(str.strip, outputs[-1].splitlines())]
        return f"program.requirements bring {package}, whose build fails: {reason.strip()[:300]}"
    if "Hash mismatch" in cause:
        return f"program.requirements has {package}: the index has other bytes than its hash says"
    cause = cause.replace("we can conclude that ", "")
    absent = re.search(r"no version of|not found|no wheels|included as a URL|^error", cause)
    fit = "cannot be installed" if absent else "do not fit together"
    remedy = "change one of them"
    parties = [
        limit for limit in limits if re.search(rf"\b{re.split('[<>=!~]', limit)[0]}\b", cause)
    ]
    if (parties or "paddlepaddle" in cause) and paddle:
        version = ".".join(paddle.partition("==")[2].split(".")[:2])
        needs = f" (the image's Paddle {version} needs {', '.join(parties)})" if parties else ""
        remedy += f', or set another `paddle` than {version}: "2.6", "3.3"{needs}'
    if "disabled for all packages" in said:
        remedy = "with program.index.secret only wheels are installed"
    return f"program.requirements {fit}: {cause.rstrip('.')}; {remedy}"
