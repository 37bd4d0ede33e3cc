"""The lines that Paddle and brpc write about themselves, among those of a program.

Named are the INFO lines of their loggers, brpc's warnings, and what Paddle 2.6.2 prints of its
graph when a program with parameter servers starts. Errors and tracebacks are never noise.
"""

import re

SOURCE = re.compile(r"\[(trainer|pserver|agent)[^\]]*\] ?")
"""What the agent writes before each line of a process."""
_GLOG = r"\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ "
_PRINTED = (
    r"public get_the_one_send_context |is_heter_ps_mode|fl-ps > |new var: |new table_name: "
    r"|debug zcb slots: |idx, name, ctx: |graph_optimizer= |valid_optimizer_list= "
    r"|meta_optimizer= |remote_optimize_vars: |communicator config: |create c2c connection done$"
    r"|entering self\._init_all_params|ShowClickEntry not configured|adam_d2sum: "
    r"|paddle\.static\.default_startup_program: | (table_id|program_id|is_tensor_table"
    r"|is_datanorm_table): "
)
_NOISE = re.compile(
    # A program in Python may write in the same forms: absl's do, and PaddleNLP's.
    rf"I{_GLOG}\S+\.(cc|cpp|cu|h):\d+\] "
    rf"|W{_GLOG}\S+\.cpp:\d+\] "
    r"|\[[\d-]+ [\d:,]+\] \[ *INFO\] (distributed_strategy|fleet|role_maker|topology)\.py:\d+ - "
    r"|LAUNCH INFO "
    r"|\S+/site-packages/paddle/\S+:\d+: \w*Warning: |\s+warnings\.warn\("
    rf"|{_PRINTED}"
)


def is_noise(line: str) -> bool:
    """Returns whether Paddle or brpc wrote this line of a log about itself."""
    return _NOISE.match(SOURCE.sub("", line, count=1)) is not None
