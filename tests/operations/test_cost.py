"""`lock prices` and `cost`: only what AWS said, unknown where it said nothing.

No emulator has the Pricing API: botocore's stubber plays its answers, in the shape that its reference documents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from commands import Run

from operations import lock_prices
from operations.lock_prices import FIXED, ask

CONFIG = str(Path(__file__).parents[2] / "cluster.yaml")


def product(usage: str, *tiers: tuple[str, str], unit: str = "Hrs") -> str:
    dimensions = {
        str(n): {"unit": unit, "beginRange": begin, "description": f"{usd} per {unit}", "pricePerUnit": {"USD": usd}}
        for n, (begin, usd) in enumerate(tiers)
    }
    terms = {"OnDemand": {"x": {"priceDimensions": dimensions}}}
    return json.dumps({"product": {"attributes": {"usagetype": usage}}, "terms": terms})


def answered(query: lock_prices.Query, *products: str) -> dict[str, str] | None:
    client = boto3.client("pricing", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(client) as stub:
        expected = {"ServiceCode": query.service, "FormatVersion": "aws_v1", "Filters": ANY}
        stub.add_response("get_products", {"FormatVersion": "aws_v1", "PriceList": list(products)}, expected)
        return ask(client, query, "us-west-2")


def test_one_clear_price_is_read() -> None:
    found = answered(
        FIXED["eks-cluster-hour"],
        product("USW2-AmazonEKS-Hours:perCluster", ("0", "0.1234")),
        product("USW2-AmazonEKS-Hours:extendedSupport", ("0", "9.99")),
    )
    assert found == {"usd": "0.1234", "unit": "Hrs", "description": "0.1234 per Hrs"}


@pytest.mark.parametrize(
    "products",
    [
        (),
        (product("USW2-KMS-Keys", ("0", "1.5")), product("USW2-KMS-Keys", ("0", "2.5"))),
        (product("USW2-KMS-Keys", ("0", "0.0")),),
        (product("USW2-KMS-Requests", ("0", "0.3")),),
    ],
    ids=["none", "two", "free", "another"],
)
def test_anything_else_stays_unknown(products: tuple[str, ...]) -> None:
    assert answered(FIXED["kms-key-month"], *products) is None


def test_of_tiers_the_first_counts() -> None:
    found = answered(FIXED["s3-standard-gb-month"], product("USW2-TimedStorage-ByteHrs", ("0", "0.5"), ("51200", "0.4")))
    assert found is not None and found["usd"] == "0.5"


def test_without_prices_everything_is_unknown(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("cost", CONFIG, columns=80)
    assert done.code == 0
    rows = [line for line in done.out.splitlines()[1:] if line.strip() and not line.startswith("in all")]
    assert rows and all("unknown" in row for row in rows)
    assert "at least 0.00" in done.out and "`paddle-aws lock prices` reads prices" in done.err and "left out:" in done.err


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    known = {"eks-cluster-hour": "0.5", "m5.large-hour": "0.25", "kms-key-month": "7.30", "ebs-gp3-gb-month": "0.1"}
    document: dict[str, Any] = {"read": "2026-01-02", "source": "a test", "region": "us-west-2"}
    document["prices"] = {name: {"usd": usd, "unit": "u", "description": "d"} for name, usd in known.items()}
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(document))
    return path


def test_sums_are_of_what_is_known(run: Run, lock: Path) -> None:
    found = json.loads(run("cost", CONFIG, "--hours", "10", "--lock", str(lock), "--json").out)
    by_name = {row["price"]: row for row in found["items"]}
    assert by_name["eks-cluster-hour"]["month_usd"] == pytest.approx(365)
    assert by_name["m5.large-hour"]["run_usd"] == pytest.approx(3 * 0.25 * 10)
    assert by_name["kms-key-month"]["run_usd"] == pytest.approx(0.1)
    assert by_name["nat-gateway-hour"]["month_usd"] is None and "NAT gateway" in found["unknown"]
    assert found["month_usd"] == pytest.approx(365 + 3 * 0.25 * 730 + 7.3 + 150 * 0.1)
    assert found["read"] == "2026-01-02"


def test_prices_of_another_region_are_not_used(run: Run, lock: Path) -> None:
    lock.write_text(lock.read_text().replace("us-west-2", "eu-west-1"))
    done = run("cost", CONFIG, "--lock", str(lock))
    assert done.code == 0 and "none of them is used" in done.err and "at least 0.00" in done.out


def test_a_file_that_is_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("[]")
    done = run("cost", CONFIG, "--lock", str(tmp_path / "x"))
    assert (done.code, done.err) == (2, f"{tmp_path / 'x'} is no file of prices: `paddle-aws lock prices` writes one\n")
