"""The CDK app: reads cluster.yaml (or the file that `-c config=` names) and builds the stacks."""

import sys
from pathlib import Path

from aws_cdk import App

from paddle_aws.stacks.cdk_command import missing_credentials
from paddle_aws.stacks.cluster_spec import load_cluster
from paddle_aws.stacks.part import removal_summary
from paddle_aws.stacks.platform import TrainingPlatform
from paddle_settings.errors import SettingError

HERE = Path(__file__).parent

if __name__ == "__main__":
    app = App()
    try:
        spec = load_cluster(Path(app.node.try_get_context("config") or HERE / "cluster.yaml"))
        if sentence := missing_credentials():
            raise SettingError(sentence)
        TrainingPlatform(app, "Platform", spec, stacks_in=app, locks=HERE / "locks")
    except SettingError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(removal_summary(spec), file=sys.stderr)
    app.synth()
