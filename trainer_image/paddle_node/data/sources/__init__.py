"""Where records come from: files, HTTP or S3, packed or not."""

from collections.abc import Mapping

from paddle_node.data.sources.source import Source, check_address


def open_source(uri: str, environ: Mapping[str, str]) -> Source:
    """Returns the source at an address, without connecting to it yet. Raises `BadSetting`."""
    check_address(uri)
    # Imported late: boto3 costs half a second and 40 MB, which a local file does not need.
    if uri.startswith("s3://"):
        from paddle_node.data.sources.s3_source import S3Source

        return S3Source(uri)
    if "://" in uri:
        from paddle_node.data.sources.http_source import HttpSource

        return HttpSource(uri)
    from paddle_node.data.sources.local_source import LocalSource

    return LocalSource(uri, environ)
