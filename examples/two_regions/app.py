"""A pipeline that deploys one platform to two regions, each with a VPC and node groups of your own.

cd examples/two_regions && cdk synth
"""

from pathlib import Path

from aws_cdk import App, Environment, Stack, Stage, pipelines
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_route53 as route53
from constructs import Construct

from constructs_lib.ec2.node_group import NodeGroupProps
from constructs_lib.network.network import FlowLogs
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.node_settings import NodeGroup
from paddle_aws.stacks.nodes import NodesStack
from paddle_aws.stacks.platform import TrainingPlatform

ACCOUNT = "111122223333"
CONNECTION = f"arn:aws:codeconnections:us-west-2:{ACCOUNT}:connection/platform"
AGENT = "#!/bin/bash\ndnf install -y amazon-cloudwatch-agent\n"


class OurNetwork(Stack):
    """A VPC and a zone of our own, in the place of the platform's."""

    def __init__(self, scope: Construct, id: str, *, env: Environment) -> None:
        super().__init__(scope, id, env=env)
        self.vpc: ec2.IVpc = ec2.Vpc(self, "Vpc", nat_gateways=1)
        self.zone: route53.IHostedZone = route53.PrivateHostedZone(
            self, "Zone", vpc=self.vpc, zone_name="vision.internal"
        )
        FlowLogs(self, "FlowLogs", vpc=self.vpc)

    @property
    def availability_zones(self) -> list[str]:
        """As cluster.yaml has them: a pipeline looks nothing up."""
        return [f"{self.region}a", f"{self.region}b"]


class OurNodes(NodesStack):
    """Our agent runs on each node."""

    def group_props(self, name: str, group: NodeGroup) -> NodeGroupProps:
        return {**super().group_props(name, group), "extra_user_data": AGENT}


class Region(Stage):
    """The platform in one region."""

    def __init__(self, scope: Construct, id: str, *, region: str) -> None:
        env = Environment(account=ACCOUNT, region=region)
        super().__init__(scope, id, env=env)
        spec = ClusterSpec.load(Path(__file__).with_name(f"{region}.yaml"))
        TrainingPlatform(
            self, "Platform", spec, network=OurNetwork(self, "Network", env=env), nodes=OurNodes
        )


def main() -> None:
    """Synthesizes the pipeline, with what it deploys."""
    app = App()
    home = Stack(app, "pipeline", env=Environment(account=ACCOUNT, region="us-west-2"))
    source = pipelines.CodePipelineSource.connection(
        "vision/platform", "main", connection_arn=CONNECTION
    )
    commands = ["pip install -r requirements.lock", "npx cdk synth"]
    pipeline = pipelines.CodePipeline(
        home, "Pipeline", synth=pipelines.ShellStep("Synth", input=source, commands=commands)
    )
    for name, region in {"Oregon": "us-west-2", "Frankfurt": "eu-central-1"}.items():
        pipeline.add_stage(Region(home, name, region=region))
    app.synth()


if __name__ == "__main__":
    main()
