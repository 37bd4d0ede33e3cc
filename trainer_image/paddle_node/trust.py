"""Certificates of a cluster's own, such as those of a proxy that looks into HTTPS: what data and
environment Jobs trust beside the public ones.
"""

import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from paddle_node import contract

_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE", "PIP_CERT")
"""Python and OpenSSL, requests, boto3 and pip each read one: a bundle that replaces theirs."""


def trust_certificates(environ: Mapping[str, str] = os.environ) -> None:
    """Has this process and its children trust the cluster's certificates, if it has any. Raises
    OSError.
    """
    own = contract.path(contract.CERTIFICATES, environ)
    if not own.exists():
        return
    boto = importlib.util.find_spec("botocore")
    assert boto is not None and boto.origin is not None, "the image has boto3"
    public = Path(boto.origin).with_name("cacert.pem").read_text("utf-8")
    bundle = Path(tempfile.gettempdir()) / "certificates.pem"
    bundle.write_text(f"{public}\n{own.read_text('utf-8')}", "utf-8")
    os.environ.update(dict.fromkeys(_VARIABLES, str(bundle)))
