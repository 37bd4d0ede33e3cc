"""Which kind of source an address is.

Promises: `open_source` raises a `Failure` that names the source and says what to do when there is nothing to read.
"""

from __future__ import annotations

from collections.abc import Mapping

from paddle_node.splitting.source import Reader


def open_source(uri: str, environ: Mapping[str, str]) -> Reader:
    """The reader for an address, told apart by how it begins."""
    # Imported late: boto3 costs half a second and 40 MB that a local file need not pay.
    if uri.startswith("s3://"):
        from paddle_node.splitting.s3_source import S3Source

        return S3Source(uri)
    if "://" in uri:
        from paddle_node.splitting.http_source import HttpSource

        return HttpSource(uri)
    from paddle_node.splitting.local_source import LocalSource

    return LocalSource(uri, environ)
