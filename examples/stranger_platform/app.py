"""Another organization's app: its pipeline deploys our platform to a dev account and, once somebody
has approved, to a prod account. `settings` has the organization's own settings, `stacks` the parts
that it replaces, org.yaml what no cluster changes.

cd examples/stranger_platform && cdk synth
"""

from pathlib import Path

from aws_cdk import App, Environment, Stack, Stage, pipelines
from constructs import Construct

from constructs_lib.acknowledged import acknowledge
from paddle_aws.stacks.cluster_spec import ClusterSpec, load_cluster
from paddle_aws.stacks.platform import TrainingPlatform
from stacks import SequencingNodes, SequencingStorage

SOURCE = "arn:aws:codeconnections:us-west-2:111122223333:connection/platform"


class Sequencing(Stage):
    """One cluster, in its own account."""

    def __init__(self, scope: Construct, id: str, spec: ClusterSpec) -> None:
        super().__init__(scope, id, env=Environment(account=spec.account, region=spec.region))
        self.platform = TrainingPlatform(
            self, "Platform", spec, storage=SequencingStorage, nodes=SequencingNodes
        )


class Pipeline(Stack):
    """Dev, then prod."""

    def __init__(self, scope: Construct, id: str, *, dev: ClusterSpec, prod: ClusterSpec) -> None:
        home = Environment(account=dev.account, region=dev.region)
        super().__init__(scope, id, env=home, description="Deploys the training platform")
        source = pipelines.CodePipelineSource.connection(
            "genomics/platform", "main", connection_arn=SOURCE
        )
        commands = ["pip install --require-hashes -r requirements.lock", "npx cdk synth"]
        pipeline = pipelines.CodePipeline(
            self,
            "Pipeline",
            synth=pipelines.ShellStep("Synth", input=source, commands=commands),
            cross_account_keys=True,
            enable_key_rotation=True,
        )
        pipeline.add_stage(Sequencing(self, "Dev", dev))
        approval = pipelines.ManualApprovalStep("Release")
        pipeline.add_stage(Sequencing(self, "Prod", prod), pre=[approval])
        pipeline.build_pipeline()
        artifacts = pipeline.pipeline.artifact_bucket
        acknowledge(artifacts, "each run makes its artifacts anew", "CKV_AWS_18", "CKV_AWS_21")
        acknowledge(self, "CDK Pipelines writes it so", "cfn-lint:E3703", "cfn-lint:W3005")


def main() -> None:
    """Synthesizes the pipeline, with what it deploys."""
    app, here = App(), Path(__file__).parent
    dev, prod = (load_cluster(here / f"{name}.yaml") for name in ("dev", "prod"))
    Pipeline(app, "sequencing-pipeline", dev=dev, prod=prod)
    app.synth()


if __name__ == "__main__":
    main()
