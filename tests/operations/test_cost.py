"""`lock prices` and `cost`: only what AWS said, unknown where it said nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_api import AwsApi, Refused
from commands import Run

from operations import aws
from operations.cost import ENDPOINTS, items
from operations.lock import FIXED, HOUR, Query, ask
from stacks.cluster_spec import ClusterSpec

CONFIG = str(Path(__file__).parents[2] / "cluster.yaml")
OWN = str(Path(__file__).parents[1] / "aws" / "variants" / "self-managed-cluster.yaml")


def product(service: str, usage: str, *tiers: tuple[str, str], unit: str = "Hrs", **attributes: str) -> dict[str, Any]:
    """A product as the Price List Query API gives it (one JSON text of the list)."""
    dimensions = {
        f"SKU.TERM.{n}": {
            "unit": unit,
            "beginRange": begin,
            "endRange": "Inf",
            "description": f"${usd} per {unit}",
            "appliesTo": [],
            "rateCode": f"SKU.TERM.{n}",
            "pricePerUnit": {"USD": usd},
        }
        for n, (begin, usd) in enumerate(tiers)
    }
    known = {"regionCode": "us-west-2", "servicecode": service, "usagetype": usage, **attributes}
    family = known.pop("productFamily", "Compute")
    term = {"priceDimensions": dimensions, "sku": "SKU", "effectiveDate": "2026-01-01T00:00:00Z", "offerTermCode": "TERM"}
    return {
        "product": {"productFamily": family, "attributes": known, "sku": "SKU"},
        "serviceCode": service,
        "terms": {"OnDemand": {"SKU.TERM": {**term, "termAttributes": {}}}},
    }


class PriceList:
    """Finds products as GetProducts does: all filters have to match; a page at a time."""

    def __init__(self, *products: dict[str, Any], page: int = 1) -> None:
        self.products, self.page = products, page

    def __call__(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = [json.dumps(one) for one in self.products if self._matches(one, asked)]
        start = int(asked.get("NextToken", 0))
        more = {"NextToken": str(start + self.page)} if start + self.page < len(found) else {}
        return {"FormatVersion": "aws_v1", "PriceList": found[start : start + self.page], **more}

    def _matches(self, one: dict[str, Any], asked: dict[str, Any]) -> bool:
        has = {**one["product"]["attributes"], "productFamily": one["product"]["productFamily"]}
        wanted = {each["Field"]: each["Value"] for each in asked["Filters"]}
        assert {each["Type"] for each in asked["Filters"]} == {"TERM_MATCH"}
        return one["serviceCode"] == asked["ServiceCode"] and wanted.items() <= has.items()


def answered(api: AwsApi, query: Query, *products: dict[str, Any]) -> dict[str, str] | None:
    api.answer("pricing", "GetProducts", PriceList(*products))
    return ask(aws.client("pricing", "us-east-1"), query, "us-west-2")


@pytest.mark.slow
def test_one_clear_price_is_read(aws_api: AwsApi) -> None:
    found = answered(
        aws_api,
        FIXED["eks-cluster-hour"],
        product("AmazonEKS", "USW2-AmazonEKS-Hours:extendedSupport", ("0", "9.99")),
        product("AmazonEKS", "USW2-AmazonEKS-Hours:perCluster", ("0", "0.1234")),
        product("AmazonEC2", "USW2-AmazonEKS-Hours:perCluster", ("0", "7.77")),
    )
    assert found == {"usd": "0.1234", "unit": "Hrs", "description": "$0.1234 per Hrs"}
    # It was on the second page.
    assert len(aws_api.asked("GetProducts")) == 2


KEYS = "USW2-KMS-Keys"


@pytest.mark.slow
@pytest.mark.parametrize(
    "products",
    [
        (),
        (product("awskms", KEYS, ("0", "1.5"), unit="Keys"), product("awskms", KEYS, ("0", "2.5"), unit="Keys")),
        (product("awskms", KEYS, ("0", "0.0"), unit="Keys"),),
        (product("awskms", "USW2-KMS-Requests", ("0", "0.3"), unit="Keys"),),
        (product("awskms", KEYS, ("0", "1.5"), unit="Keys", regionCode="eu-west-1"),),
        (product("awskms", KEYS, ("0", "0.002"), unit="Hrs"),),
        (product("awskms", "USW2-Replica-KMS-Keys", ("0", "1.5"), unit="Keys"),),
    ],
    ids=["none", "two", "free", "another", "elsewhere", "by the hour", "of a longer name"],
)
def test_anything_else_stays_unknown(aws_api: AwsApi, products: tuple[dict[str, Any], ...]) -> None:
    assert answered(aws_api, FIXED["kms-key-month"], *products) is None


@pytest.mark.slow
@pytest.mark.parametrize("usage", [KEYS, "us-west-2-KMS-Keys", "KMS-Keys"])
def test_a_usage_types_region_is_written_in_three_ways(aws_api: AwsApi, usage: str) -> None:
    found = answered(aws_api, FIXED["kms-key-month"], product("awskms", usage, ("0", "1.5"), unit="Keys"))
    assert found is not None and found["usd"] == "1.5"


def test_each_price_is_reckoned_by_the_unit_that_it_is_read_in() -> None:
    """An item by the hour with a price by the month would be wrong 730 times."""
    spec = ClusterSpec.load(Path(OWN))
    for item in [*items(spec), *items(ClusterSpec.load(Path(CONFIG)))]:
        if item.price in FIXED:
            assert item.hourly == (FIXED[item.price].unit == HOUR), item.what


@pytest.mark.slow
def test_of_tiers_the_first_counts(aws_api: AwsApi) -> None:
    stored = product("AmazonS3", "USW2-TimedStorage-ByteHrs", ("0", "0.5"), ("51200", "0.4"), unit="GB-Mo")
    found = answered(aws_api, FIXED["s3-standard-gb-month"], stored)
    assert found is not None and found["usd"] == "0.5"


@pytest.mark.slow
def test_the_lock_says_when_and_where_it_was_read(
    run: Run, aws_api: AwsApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    machine = {"instanceType": "m5.large", "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA"}
    machines = [
        product("AmazonEC2", "USW2-BoxUsage:m5.large", ("0", "0.25"), capacitystatus="Used", **machine),
        product(
            "AmazonEC2", "USW2-BoxUsage:m5.large", ("0", "0.95"), capacitystatus="Used", **machine | {"operatingSystem": "SUSE"}
        ),
        product("AmazonEC2", "USW2-UnusedBox:m5.large", ("0", "0.25"), capacitystatus="Used", **machine),
    ]
    catalogue = PriceList(product("AmazonEKS", "USW2-AmazonEKS-Hours:perCluster", ("0", "0.5")), *machines)
    first = [True]

    def throttled_at_first(asked: dict[str, Any]) -> dict[str, Any]:
        if first:
            raise Refused("ThrottlingException", "Rate exceeded" if first.pop() else "")
        return catalogue(asked)

    aws_api.answer("pricing", "GetProducts", throttled_at_first)
    done = run("lock", "prices", CONFIG)
    assert done.code == 0, done.err
    assert done.err.startswith("2 prices of us-west-2 are in locks/prices.json; unknown stay ")
    found = json.loads((tmp_path / "locks" / "prices.json").read_text())
    assert list(found)[:3] == ["read", "source", "region"]
    assert {name: price["usd"] for name, price in found["prices"].items()} == {"eks-cluster-hour": "0.5", "m5.large-hour": "0.25"}
    aws_api.refuse("pricing", "GetProducts", "AccessDeniedException", "User: x is not authorized to perform: pricing:GetProducts")
    done = run("lock", "prices", CONFIG)
    assert done.code == 3 and done.err.startswith("AWS refused GetProducts: AccessDeniedException: User: x is not authorized")


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


def test_a_self_managed_cluster_has_a_machine_instead_of_the_eks_fee(run: Run, tmp_path: Path) -> None:
    items = {row["what"]: row for row in json.loads(run("cost", OWN, "--json").out)["items"]}
    assert not any("EKS" in what for what in items)
    assert items["t3.medium (control plane)"]["count"] == 1
    assert items["GiB of disk and state volume (control plane)"]["count"] == 50
    assert {"Elastic IP (control plane)", "secrets: tokens, CA hash, kubeconfigs"} <= items.keys()
    assert "m5.large (nodes.workers)" in items


@pytest.mark.slow
def test_a_private_cluster_pays_for_its_endpoints(run: Run) -> None:
    from constructs_lib.network import SELF_MANAGED_SERVICES, SERVICES

    assert {"eks": len(SERVICES), "self-managed": len(SELF_MANAGED_SERVICES)} == ENDPOINTS
    private = str(Path(__file__).parents[1] / "aws" / "variants" / "private.yaml")
    items = {row["what"]: row for row in json.loads(run("cost", private, "--json").out)["items"]}
    spec = ClusterSpec.load(Path(private))
    assert items["private endpoints of AWS's services"]["count"] == len(SERVICES) * len(spec.network.zones)
