"""EKS's and Parameter Store's answers about versions, which no emulator has."""

from typing import Any

from aws_api import AwsApi, Parameters


def release(kubernetes: str, day: int = 1) -> str:
    """Of a node image."""
    return f"{kubernetes}.0-2026110{day}"


class AddOnAnswers:
    """Two pages an add-on, the older version first; the releases of all images but NVIDIA's of 1.36."""

    def __init__(self, api: AwsApi) -> None:
        self.newest: dict[str, int] = {}
        """Patch of an add-on's default version: 1, where it is not here; 0: it has none."""
        self.day = 1
        api.answer("eks", "DescribeAddonVersions", self._supported)
        api.answer("ssm", "GetParameters", self._recommended)

    def _supported(self, asked: Parameters) -> dict[str, Any]:
        name, kubernetes = asked["addonName"], asked["kubernetesVersion"]
        default, last = self.newest.get(name, 1), "nextToken" in asked
        patch = default if last else 0
        elsewhere = {"clusterVersion": "1.0", "defaultVersion": True}
        here = {"clusterVersion": kubernetes, "defaultVersion": last and default > 0}
        version = {"addonVersion": f"v1.{kubernetes[2:]}.{patch}-eksbuild.1", "compatibilities": [here, elsewhere]}
        more = {} if last else {"nextToken": "more"}
        return {"addons": [{"addonName": name, "addonVersions": [version]}], **more}

    def _recommended(self, asked: Parameters) -> dict[str, Any]:
        assert all(name.endswith("/recommended/release_version") for name in asked["Names"])
        known = [name for name in asked["Names"] if "/1.36/amazon-linux-2023/x86_64/nvidia/" not in name]
        return {"Parameters": [{"Name": name, "Value": release(name.split("/")[5], self.day)} for name in known]}
