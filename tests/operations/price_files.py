"""AWS's public price list files: an HTTP server of the form that AWS documents.

What is real: HTTP, each service's `region_index.json`, and below the address that it gives a CSV file with five lines about
itself above the table. Columns and values are spelled as in the published files.

Limits: prices and sizes are the tests' own (EC2's real file has hundreds of megabytes); a table has the columns that its rows
need, the published ones have some ninety; no other region, version or JSON form is served.
"""

from __future__ import annotations

import csv
import io
import json

from http_server import FileServer

REGION = "us-west-2"
SERVICES = ("AmazonEC2", "AmazonEFS", "AmazonEKS", "AmazonVPC", "AWSSecretsManager", "awskms")
Row = dict[str, str]


def row(usage: str, usd: str, unit: str = "Hrs", **columns: str) -> Row:
    """One price, on demand, from the first unit on."""
    price = {"TermType": "OnDemand", "PriceDescription": f"${usd} per {unit}", "StartingRange": "0", "EndingRange": "Inf"}
    return {**price, "Unit": unit, "PricePerUnit": usd, "Currency": "USD", "usageType": usage, "Region Code": REGION} | columns


def machine(kind: str, usd: str, **columns: str) -> Row:
    """An hour of a Linux machine."""
    linux = {"Instance Type": kind, "Tenancy": "Shared", "Operating System": "Linux", "Pre Installed S/W": "NA"}
    return row(f"USW2-BoxUsage:{kind}", usd, **linux, CapacityStatus="Used") | columns


class PriceFiles(FileServer):
    """`rows` is what it has for each service; `files` take the place of a path's own."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[Row]] = {}

    def find(self, path: str) -> bytes | None:
        text = self.files.get(path) or self.text(path)
        return text.encode() if isinstance(text, str) else text

    def text(self, path: str) -> str | None:
        """What lies at a path."""
        for service in SERVICES:
            top, version = f"/offers/v1.0/aws/{service}", "20260102030405"
            if path == f"{top}/current/region_index.json":
                where = {"regionCode": REGION, "currentVersionUrl": f"{top}/{version}/{REGION}/index.json"}
                return json.dumps(
                    {"formatVersion": "v1.0", "publicationDate": "2026-01-02T03:04:05Z", "regions": {REGION: where}}
                )
            if path == f"{top}/{version}/{REGION}/index.csv":
                return self._table(service, version)
        return None

    def _table(self, service: str, version: str) -> str:
        about = {"FormatVersion": "v1.0", "Disclaimer": "a test's", "Publication Date": "2026-01-02T03:04:05Z"}
        found = io.StringIO()
        writer = csv.writer(found, quoting=csv.QUOTE_ALL)
        writer.writerows([*about.items(), ("Version", version), ("OfferCode", service)])
        rows = self.rows.get(service, [])
        columns = list(dict.fromkeys(name for one in (row("", "0"), *rows) for name in one))
        table = csv.DictWriter(found, columns, restval="", quoting=csv.QUOTE_ALL)
        table.writeheader()
        table.writerows(rows)
        return found.getvalue()
