"""Facts about EC2's instance types: which can have an EFA, and on which cards; which can be in a
placement group or have disks.

`make lock` runs this program with a wheel of moto, which carries EC2's answer to
DescribeInstanceTypes. It prints the JSON of constructs_lib/ec2/instance_types.json: by setting and
family, the sizes that can have it, if not all can; the first and last network card that takes an
EFA, for types with several; all sizes of each x86-64 family; families with their own disks; the
number of NVIDIA GPUs of each type.
"""

import gzip
import json
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

with zipfile.ZipFile(sys.argv[1]) as wheel:
    types = json.loads(gzip.decompress(wheel.read("moto/ec2/resources/instance_types.json.gz")))

families: dict[str, list[str]] = defaultdict(list)
for name in sorted(types):
    # Arm is refused anyway.
    if "x86_64" in types[name]["ProcessorInfo"]["SupportedArchitectures"]:
        families[name.partition(".")[0]].append(name)

able = {
    "efa": {name for name, facts in types.items() if facts["NetworkInfo"].get("EfaSupported")},
    "placement_group": {
        name
        for name, facts in types.items()
        if "cluster" in facts["PlacementGroupInfo"]["SupportedStrategies"]
    },
}
document = {
    setting: {
        family: [name.partition(".")[2] for name in names if name in can]
        for family, names in families.items()
        if not can.issuperset(names)
    }
    for setting, can in able.items()
}
cards = {}
for name in sorted(name for names in families.values() for name in names):
    network = types[name]["NetworkInfo"]
    adapters = network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 1)
    # A first card with room for only one interface (hpc6id) cannot hold an EFA beside the node's
    # own.
    if adapters > 1 and network["NetworkCards"][0]["MaximumNetworkInterfaces"] > 1:
        cards[name] = [
            network["MaximumNetworkCards"] - adapters,
            network["MaximumNetworkCards"] - 1,
        ]
disks = [
    family for family, names in families.items() if types[names[0]].get("InstanceStorageSupported")
]
gpus = {
    name: sum(gpu["Count"] for gpu in types[name]["GpuInfo"]["Gpus"])
    for names in families.values()
    for name in names
    if any(
        gpu["Manufacturer"] == "NVIDIA" for gpu in types[name].get("GpuInfo", {}).get("Gpus", ())
    )
}
document["sizes"] = {
    family: [name.partition(".")[2] for name in names] for family, names in families.items()
}
document |= {"efa_cards": cards, "disks": sorted(disks), "gpus": gpus}
version = Path(sys.argv[1]).name.split("-")[1]
print(
    json.dumps(
        {"source": f"EC2's DescribeInstanceTypes, as moto {version} carries it", **document},
        indent=1,
    )
)
