"""What cluster.yaml is checked against: which EC2 instance types can have an EFA, or be in a placement group.

`make lock` runs it. Argument: a wheel of moto, which carries the answer of EC2's DescribeInstanceTypes. Prints the JSON of
stacks/instance_types.json: setting: family: its sizes that can have it, for families in which not all can.
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
    "placement_group": {name for name, facts in types.items() if "cluster" in facts["PlacementGroupInfo"]["SupportedStrategies"]},
}
found = {
    setting: {
        family: [name.partition(".")[2] for name in names if name in can]
        for family, names in families.items()
        if not can.issuperset(names)
    }
    for setting, can in able.items()
}
version = Path(sys.argv[1]).name.split("-")[1]
print(json.dumps({"source": f"EC2's DescribeInstanceTypes, as moto {version} carries it", **found}, indent=1))
