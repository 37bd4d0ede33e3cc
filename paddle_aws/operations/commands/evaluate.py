"""`paddle-aws evaluate`: how good a trained model is, on the records that were held out from
training.
"""

from paddle_aws.operations import options
from paddle_aws.operations.errors import cli_errors
from paddle_aws.operations.jobs.backend import choose_backend
from paddle_aws.operations.screen import echo, print_json


@cli_errors("interrupted: the evaluation's Job is removed, or ends on its own")
def evaluate(
    job: options.JobArgument = options.DEFAULT,
    rehearsal: options.OfRehearsal = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    json: options.Json = False,
) -> None:
    """Measure a trained model on the held-out records, and compare it with the best constant
    answer.

    A Job of one pod, with the training's image and resources, measures the newest complete pass;
    then the command removes it.

    Example: paddle-aws evaluate quick-start
    """
    evaluation = choose_backend(job, namespace, context, rehearsal).evaluate()
    if json:
        print_json(evaluation.model_dump(by_alias=True))
        return
    echo(
        f"{evaluation.metric} {evaluation.value:.3f} of pass {evaluation.number}, on "
        f"{evaluation.records:,} records that no trainer saw"
    )
    echo(f"{evaluation.baseline_of}: {evaluation.baseline:.3f}")
