"""Which connections a self-managed cluster allows: the exact ports, in both directions.

Pods talk over the pod network, so a job needs a rule only for ports that it takes on its nodes
(`host_ports`). Node ports, etcd and SSH stay closed.
"""

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from constructs_lib.addresses import API_CLIENTS, SSH_CLIENTS
from constructs_lib.ec2.node_rules import wrong_ports
from constructs_lib.rules import refuse_text
from constructs_lib.subnets import closed_group
from constructs_lib.validation import check, refuse

API = ec2.Port.tcp(6443)
KUBELET = ec2.Port.tcp(10250)
POD_NETWORK = ec2.Port.udp(8472)
HTTPS = ec2.Port.tcp(443)


class ClusterFirewall(Construct):
    """The security groups of the control plane and of the nodes.

    Args:
        api_from: CIDRs that may reach the API, besides the nodes.
        ssh_from: CIDRs that may reach SSH on the control plane; empty: closed.
        host_ports: TCP ports that nodes open to each other, such as "7164-7167".
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        api_from: Sequence[str] = (),
        ssh_from: Sequence[str] = (),
        host_ports: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        self.control_plane = closed_group(self, "ControlPlane", vpc, "Control plane of the cluster")
        self.nodes = closed_group(self, "Nodes", vpc, "Nodes of the cluster")
        refuse(
            self.node.path,
            [
                *check(api_from=(API_CLIENTS, api_from), ssh_from=(SSH_CLIENTS, ssh_from)),
                *refuse_text("host_ports", host_ports, "7164-7167"),
                *(() if isinstance(host_ports, str) else wrong_ports(host_ports)),
            ],
        )
        for cidr in api_from:
            self.control_plane.add_ingress_rule(ec2.Peer.ipv4(cidr), API, "Kubernetes API")
        for cidr in ssh_from:
            self.control_plane.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(22), "SSH")
        control, nodes = self.control_plane, self.nodes
        rules = [(nodes, control, API, "Kubernetes API")]
        # The control plane is one machine, so it needs no rule for traffic with itself.
        pairs = [(control, nodes), (nodes, control), (nodes, nodes)]
        rules += [(source, target, KUBELET, "kubelet: logs, metrics") for source, target in pairs]
        rules += [(source, target, POD_NETWORK, "pod network, VXLAN") for source, target in pairs]
        for ports in host_ports:
            first, _, last = ports.partition("-")
            opened = ec2.Port.tcp_range(int(first), int(last or first))
            rules.append((nodes, nodes, opened, "host ports of jobs"))
        for source, target, port, meaning in rules:
            target.add_ingress_rule(source, port, meaning)
            source.add_egress_rule(target, port, meaning)
        anybody = ec2.Peer.any_ipv4()
        for group in (control, nodes):
            group.add_egress_rule(anybody, HTTPS, "AWS, image registries, data")
        nodes.add_egress_rule(anybody, ec2.Port.tcp(80), "training data from http addresses")
