# Every use of Snakemake beyond its documented interface is in this file, which is included before all others. A new
# version may break any of these, and then the test that is named with it fails.
import logging
import re

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake.settings.enums import Quietness

HIDDEN_MESSAGES = (
    "Assuming unrestricted shared filesystem",
    "Building DAG",
    "Complete log",
    "Conda environments: ignored",
    "Config file ",
    "Elapsed time",
    "Execute ",
    "Select jobs to execute",
    "Using shell",
)
# The set that profiles/default hides. Another set comes from the command line, and stays.
PROFILE_QUIET = {
    Quietness.HOST,
    Quietness.PROGRESS,
    Quietness.REASON,
    Quietness.RULES,
}
# Snakemake's messages on a failed job, which repeat our own line.
REDUNDANT_ERRORS = (
    "RuleException:\nCalledProcessError",
    "Exiting because a job execution failed",
    "WorkflowError:\nAt least one job did not complete successfully",
)
MISSING_RULE = "MissingRuleException:\nNo rule to produce "


class Refused(WorkflowError):
    """An error before the first job, in one line; the terminal shows it alone, without file, line and traceback."""


# As Snakemake prints it.
REFUSAL = re.compile(
    rf"^ *{Refused.__name__}(?: in .*)?:\n *(.+(?:\n(?!Wildcards:|  File ).+)*)",
    re.MULTILINE,
)


def is_shown(record):
    """Whether the terminal shows a record: `--quiet` has no such choice, and a plugin would have to be installed.

    For a failed job we show its log, not its command. Held by tests/pipeline/test_terminal_output.py.
    """
    if getattr(record, "event", None) == LogEvent.JOB_INFO and PROGRESS:
        note_start(record.rule_name)
    text = str(record.msg)
    if refusal := REFUSAL.search(text):
        record.msg = refusal[1]
        # Snakemake also warns of what an input function raises.
        return record.levelno >= logging.ERROR
    if text.startswith(MISSING_RULE):
        name = text.removeprefix(MISSING_RULE).split(" (if you use")[0]
        from sharebench import cli  # only this message needs it

        # These are two lines, since the linter would take one line for a rule.
        names = sorted(each.name for each in workflow.rules if not each.has_wildcards())
        known = f"targets: {', '.join(names)}"
        record.msg = f"no rule and no file {name}; {known}"
        if name in cli.commands.commands:
            record.msg = f"{name} is a command, not a target; type: {cli.usage(name, config_words())}"
    if record.levelno > logging.INFO:
        return not text.startswith(REDUNDANT_ERRORS)
    return not text.startswith(HIDDEN_MESSAGES)


def explain_dry_run():
    """Show what the profile hides in runs. Held by test_a_dry_run_lists_jobs_with_reasons_and_changes_nothing."""
    quiet = workflow.output_settings.quiet
    if workflow.output_settings.dryrun and quiet == PROFILE_QUIET:
        quiet.intersection_update({Quietness.HOST})


def lift_job_limit():
    """Remove the limit of jobs per second, which no option or profile can do.

    The limit starts a timer for every job, which never ends: after n jobs the scheduler would look at all ready jobs
    n times a second, during measurements. Held by tests/pipeline/test_idle_scheduler.py.
    """
    workflow.scheduler.job_rate_limiter = None


def refuse_module():
    """Refuse to be a module, whose `onstart` Snakemake does not call. Held by tests/pipeline/test_config_errors.py."""
    if len(workflow.modifier_stack) > 1:
        raise Refused(
            "this workflow cannot be a module: Snakemake would neither claim nor restore the node for it; measure with "
            "`snakemake --snakefile PATH/Snakefile --directory FOLDER`, and read its results"
        )


def jobs_to_run():
    """The first output of each job of this run ("" without any), by rule. Held by tests/pipeline/test_terminal_output.py."""
    first_outputs = {}
    for job in workflow.dag.needrun_jobs():
        output = str(job.output[0]) if job.output else ""
        first_outputs.setdefault(one_rule(job.rule.name), []).append(output)
    return first_outputs


def logs_of_unfinished_jobs():
    """Logs of what this run should have done and did not. Held by tests/pipeline/test_failures_and_outcomes.py."""
    jobs = [
        job for job in workflow.dag.needrun_jobs() if not workflow.dag.finished(job)
    ]
    return [Path(log) for job in jobs for log in job.log]


def command_line_config():
    """The config that `--config` gives. Held by tests/pipeline/test_config_errors.py."""
    return workflow.config_settings.config


def given_config():
    """The config of `--config` and `--configfile`, without our defaults. Held by tests/pipeline/test_advice.py."""
    return workflow.config_settings.overwrite_config


def config_files():
    """Paths of all config files, also of the workflow's own. Held by tests/pipeline/test_config_errors.py."""
    return workflow.configfiles


def is_executed_elsewhere():
    """Whether `--executor` runs jobs on other hosts; known from `onstart` on. Held by tests/pipeline/test_executors.py."""
    return workflow.non_local_exec


def has_deployment_method():
    """Whether `--software-deployment-method` was given. Held by tests/pipeline/test_config_errors.py."""
    return bool(workflow.deployment_settings.deployment_method)


logger.addFilter(is_shown)
refuse_module()
explain_dry_run()
