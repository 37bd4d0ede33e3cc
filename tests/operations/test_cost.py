"""`lock prices` and `cost` say only what AWS's own files say, call the rest unknown, and refuse if
nothing was read.
"""

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_api import AwsApi
from commands import Run
from http_server import FileServer

from paddle_aws.operations.account.cost_items import ENDPOINTS

CONFIG = str(Path(__file__).parents[2] / "cluster.yaml")
VARIANTS = Path(__file__).parents[1] / "aws" / "variants"
DATA = yaml.safe_load(Path(__file__).with_name("cost.yaml").read_text())
SPOT = "retain: false\nnodes: {workers: {instance_types: [m5.large], spot: true}}\n"
TOP = "/offers/v1.0/aws"
SERVICES = ("AmazonEC2", "AmazonEFS", "AmazonEKS", "AmazonVPC", "AWSSecretsManager", "awskms")
ROW = {
    "TermType": "OnDemand",
    "PriceDescription": "a price",
    "StartingRange": "0",
    "Currency": "USD",
    "usageType": "",
}
ROW |= {"Unit": "Hrs", "PricePerUnit": "0", "Region Code": "us-west-2"}


class PriceFiles(FileServer):
    """Each service's index of regions, and under the address in it a table that follows five lines
    about itself.
    """

    def offer(self, service: str, rows: list[dict[str, str]]) -> None:
        """Serves only the columns that the rows need; the published tables have some ninety."""
        where = f"{TOP}/{service}/20260102030405/us-west-2/index"
        index = {
            "regions": {
                "us-west-2": {"regionCode": "us-west-2", "currentVersionUrl": f"{where}.json"}
            }
        }
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("FormatVersion", "v1.0")] * 5)
        columns = dict.fromkeys(name for row in (ROW, *rows) for name in row)
        table = csv.DictWriter(text, [*columns], restval="", quoting=csv.QUOTE_ALL)
        table.writeheader()
        table.writerows(ROW | row for row in rows)
        self.files[f"{TOP}/{service}/current/region_index.json"] = json.dumps(index).encode()
        self.files[f"{where}.csv"] = text.getvalue().encode()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PriceFiles]:
    """AWS's files, for a user without credentials in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in [
        name
        for name in os.environ
        if name.startswith("AWS_") and name != "AWS_EC2_METADATA_DISABLED"
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with PriceFiles() as served:
        for service in SERVICES:
            served.offer(service, DATA["machines"] if service == "AmazonEC2" else [])
        yield served


def read(run: Run, files: PriceFiles, config: str = CONFIG) -> dict[str, str]:
    """Runs `lock prices`. Returns the prices in the lock."""
    done = run("lock", "prices", config, "--files", files.url)
    assert done.code == 0 and "spot prices were not read" not in done.err, done.err
    lock = json.loads(Path("locks/prices.json").read_text())
    assert list(lock)[:3] == ["read", "source", "region"]
    return {name: price["usd"] for name, price in lock["prices"].items()}


@pytest.mark.parametrize("usage", DATA["clear"])
def test_one_clear_price_is_read_without_credentials(
    run: Run, files: PriceFiles, usage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    files.offer("awskms", [DATA["key"] | {"usageType": usage}, *DATA["beside"]["awskms"]])
    files.offer("AmazonEC2", DATA["machines"] + DATA["beside"]["AmazonEC2"])
    assert read(run, files) == {
        "kms-key-month": "1.5",
        "m5.large-hour": "0.25",
        "t4g.nano-hour": "0.01",
    }
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", DATA["unclear"])
def test_anything_else_stays_unknown(run: Run, files: PriceFiles, name: str) -> None:
    files.offer("awskms", DATA["unclear"][name])
    assert "kms-key-month" not in read(run, files)
    done = run("cost", CONFIG)
    assert done.code == 0 and "KMS key" in done.err.partition("unknown: ")[2]


@pytest.mark.parametrize("case", DATA["unread"], ids=lambda case: case["says"])
def test_what_cannot_be_read_leaves_the_lock_as_it_was(
    run: Run, files: PriceFiles, case: dict[str, Any]
) -> None:
    Path("cluster.yaml").write_text(yaml.safe_dump({"retain": False, **case.get("settings", {})}))
    if "file" in case:
        files.files[f"{TOP}/AmazonEC2{case['file']}"] = case["text"].encode()
    done = run("lock", "prices", "--files", files.url)
    assert (done.code, done.err.splitlines()[-1]) == (
        1 if "file" in case else 2,
        case["says"].format(url=files.url),
    )
    assert not Path("locks").exists()


def test_spot_prices_are_read_with_credentials_alone(
    run: Run, files: PriceFiles, request: pytest.FixtureRequest
) -> None:
    Path("cluster.yaml").write_text(SPOT)
    done = run("lock", "prices", "--files", files.url)
    assert done.code == 0 and "spot prices were not read: no AWS credentials were found" in done.err
    done = run("cost")
    assert done.code == 0 and "spot prices are read with AWS credentials alone" in done.err
    prices = [("us-west-2a", "0.1"), ("us-west-2b", "0.12")]
    history = [
        {"AvailabilityZone": zone, "SpotPrice": usd, "InstanceType": "m5.large"}
        for zone, usd in prices
    ]
    api: AwsApi = request.getfixturevalue("aws_api")
    api.answer("ec2", "DescribeSpotPriceHistory", {"SpotPriceHistory": history})
    assert read(run, files, "cluster.yaml")["m5.large-spot-hour"] == "0.12"
    (asked,) = api.asked("DescribeSpotPriceHistory")
    assert asked["InstanceTypes"] == ["m5.large"] and asked["ProductDescriptions"] == ["Linux/UNIX"]
    assert "m5.large spot (nodes.workers)" not in run("cost").err


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    document: dict[str, Any] = {"read": "2026-01-02", "source": "a test", "region": "us-west-2"}
    document["prices"] = {
        name: {"usd": usd, "unit": "u", "description": "d"} for name, usd in DATA["prices"].items()
    }
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("case", DATA["locks"], ids=lambda case: str(case["lock"]))
def test_without_prices_there_is_no_sum(run: Run, lock: Path, case: dict[str, Any]) -> None:
    if case["lock"] is None:
        lock.unlink()
    else:
        lock.write_text(json.dumps(case["lock"] and json.loads(lock.read_text()) | case["lock"]))
    done = run("cost", CONFIG, "--lock", str(lock))
    assert (
        (done.code, done.out) == (2, "")
        and done.err.startswith(case["says"].format(lock=lock))
        and done.err.count("\n") == 1
    )


def test_fsx_for_lustre_has_a_price(run: Run, files: PriceFiles, lock: Path) -> None:
    Path("cluster.yaml").write_text("retain: false\nfile_system: {kind: lustre}\n")
    row = {"Unit": "GB-Mo", "operation": "CreateFileSystem:Lustre"}
    rates = {"": "0.14", ".SSD.125": "0.145", ".SSD.250": "0.21", ".MultiAZ:SSD": "0.23"}
    rows = [
        {**row, "usageType": f"USW2-Storage{rate}", "PricePerUnit": usd}
        for rate, usd in rates.items()
    ]
    others = {"usageType": "USW2-Storage.SSD.125", "operation": "CreateFileSystem:Windows"}
    files.offer("AmazonFSx", [*rows, {**row, **others, "PricePerUnit": "0.13"}])
    assert read(run, files, "cluster.yaml")["fsx-lustre-125-gb-month"] == "0.145"
    items = json.loads(run("cost", "cluster.yaml", "--json").out)["items"]
    [lustre] = [item["month_usd"] for item in items if "Lustre" in item["what"]]
    assert lustre == pytest.approx(174)


def test_the_pages_example_is_priced_by_its_own_prices(run: Run, lock: Path) -> None:
    page = (Path(CONFIG).parent / "docs" / "do" / "cost.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line[:2] == "| "][1:]
    document = json.loads(lock.read_text())
    items = json.loads(run("cost", CONFIG, "--lock", str(lock), "--json").out)["items"]
    names = {item["what"]: item["price"] for item in items}
    for what, _, usd, _ in lines[:-1]:
        document["prices"][names[what]] = {"usd": usd.split()[0]}
    lock.write_text(json.dumps(document))
    cost = json.loads(run("cost", CONFIG, "--lock", str(lock), "--json").out)
    assert cost["unknown"] == [] and len(lines) == len(cost["items"]) + 1
    for (what, count, _, month), item in zip(lines, cost["items"], strict=False):
        assert (what, float(count)) == (item["what"], item["count"])
        assert float(month) == pytest.approx(item["month_usd"], abs=0.005)
    assert float(lines[-1][-1]) == pytest.approx(cost["month_usd"], abs=0.005)


def test_sums_are_of_what_is_known(run: Run, lock: Path) -> None:
    cost = json.loads(run("cost", CONFIG, "--hours", "10", "--lock", str(lock), "--json").out)
    by_name = {row["price"]: row for row in cost["items"]}
    assert by_name["eks-cluster-hour"]["month_usd"] == pytest.approx(365)
    assert by_name["m5.large-hour"]["run_usd"] == pytest.approx(3 * 0.25 * 10)
    assert by_name["kms-key-month"]["run_usd"] == pytest.approx(0.1)
    assert by_name["nat-gateway-hour"]["month_usd"] is None and "NAT gateway" in cost["unknown"]
    assert cost["month_usd"] == pytest.approx(365 + (3 * 0.25 + 0.01) * 730 + 7.3 + 158 * 0.1)
    assert cost["read"] == "2026-01-02"
    narrow = run("cost", CONFIG, "--lock", str(lock), columns=60).out.splitlines()
    assert max(len(line) for line in narrow if not line.startswith("in all")) <= 60
    wide = run("cost", CONFIG, "--lock", str(lock))
    assert "in all at least " in wide.out and "left out:" in wide.err


@pytest.mark.parametrize("settings", DATA["counted"])
def test_each_kind_of_cluster_costs_what_it_is_made_of(
    run: Run, lock: Path, tmp_path: Path, settings: str
) -> None:
    """Nodes of auto mode cost money while jobs run."""
    case, config = DATA["counted"][settings], VARIANTS / settings
    if "settings" in case:
        config = tmp_path / "cluster.yaml"
        config.write_text(yaml.safe_dump(case["settings"]))
    items = json.loads(
        run("cost", str(config), "--hours", "10", "--lock", str(lock), "--json").out
    )["items"]
    for row in case["items"]:
        assert [item for item in items if row.items() <= item.items()], row
    assert not [
        item["what"]
        for item in items
        if any(word in item["what"] for word in case.get("nothing of", ()))
    ]


@pytest.mark.slow
def test_a_private_cluster_pays_for_all_of_its_endpoints() -> None:
    from constructs_lib.network.network import SELF_MANAGED_SERVICES, SERVICES

    assert {"eks": len(SERVICES), "self-managed": len(SELF_MANAGED_SERVICES)} == ENDPOINTS
