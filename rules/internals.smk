# What this workflow uses of Snakemake beyond its documented interface; nothing of that is anywhere else. Included before
# everything else. A new version may break each of these, and then the test that is named with it fails.
import logging

from snakemake.logging import logger
from snakemake.settings.enums import Quietness

CHATTER = (
    "Assuming unrestricted shared filesystem",
    "Building DAG",
    "Complete log",
    "Conda environments: ignored",
    "Config file ",
    "Elapsed time",
    "Execute ",
    "Handing over execution",
    "Select jobs to execute",
    "Using shell",
)
# What profiles/default hides; another set was asked for on the command line, and stays.
BY_PROFILE = {
    Quietness.HOST,
    Quietness.PROGRESS,
    Quietness.REASON,
    Quietness.RULES,
}
# What a failed job says in addition to our own line.
NO_NEWS = (
    "RuleException:\nCalledProcessError",
    "Exiting because a job execution failed",
    "WorkflowError:\nAt least one job did not complete successfully",
)
NO_SUCH_RULE = "MissingRuleException:\nNo rule to produce "


def is_news(record):
    """Whether a person wants to read it; of a failed job we show the log, not the command with its long arguments.

    `--quiet` has no such choice, and a logger plugin would have to be installed. Held by
    tests/pipeline/test_what_the_terminal_shows.py.
    """
    text = str(record.msg)
    if text.startswith(NO_SUCH_RULE):
        asked = text.removeprefix(NO_SUCH_RULE).split(" (if you use")[0]
        # Apart, or the linter takes the line for a rule.
        names = sorted(each.name for each in workflow.rules if not each.has_wildcards())
        known = f"targets: {', '.join(names)}"
        record.msg = f"no rule and no file {asked}; {known}"
    if record.levelno > logging.INFO:
        return not text.startswith(NO_NEWS)
    return not text.startswith(CHATTER)


def explain_dry_run():
    """Have a dry run explain every job, though the profile hides it in runs: a profile cannot distinguish the two.

    Held by test_a_dry_run_says_what_would_run_and_why.
    """
    quiet = workflow.output_settings.quiet
    if workflow.output_settings.dryrun and quiet == BY_PROFILE:
        quiet.intersection_update({Quietness.HOST})


def lift_job_limit():
    """Take away the limit of jobs per second, which no option or profile can.

    It starts a timer for every job, which never ends: after n jobs the scheduler would look at all ready jobs n times a
    second, during measurements. Held by tests/pipeline/test_a_quiet_scheduler.py.
    """
    workflow.scheduler.job_rate_limiter = None


def take_one_of(count, about):
    """Have jobs of the rules in `about` take the device whose number is found there; other jobs do not run meanwhile.

    `handover` gives a job all that there is at the time that Snakemake reads it, which is before this. Such jobs take all
    devices as a whole, those that do not measure a bit of each. Held by tests/pipeline/test_several_devices.py.
    """
    whole = 1000
    for number in range(count):
        workflow.register_resource(f"device{number}", whole)
        for each in workflow.rules:
            number_of = about.get(each.name)
            each.resources[f"device{number}"] = (
                (lambda wildcards, f=number_of, n=number: whole * (f(wildcards) == n))
                if number_of
                else (whole if each.is_handover else 1)
            )
    for each in workflow.rules:
        if each.is_handover:
            each.resources["_cores"] = 1
    cores = max(workflow.cores or 1, count)
    workflow.resource_settings.cores = cores
    workflow.register_resource("_cores", cores)


def jobs_to_run():
    """The first output of each job that this run will do ("" without), by rule; known from `onstart` on.

    `onstart` gets nothing of the jobs, which the plan's headline counts. Held by
    tests/pipeline/test_what_the_terminal_shows.py.
    """
    first_outputs = {}
    for job in workflow.dag.needrun_jobs():
        output = str(job.output[0]) if job.output else ""
        first_outputs.setdefault(job.rule.name, []).append(output)
    return first_outputs


def logs_of_unfinished_jobs():
    """The logs of all jobs that this run should have done and did not.

    `onerror` gets Snakemake's own log alone. Held by tests/pipeline/test_failures_and_outcomes.py.
    """
    jobs = [
        job for job in workflow.dag.needrun_jobs() if not workflow.dag.finished(job)
    ]
    return [Path(log) for job in jobs for log in job.log]


def config_of_command():
    """What `--config` overrides. Held by tests/pipeline/test_config_errors.py."""
    return workflow.config_settings.config


def config_given():
    """What `--config` and `--configfile` set, without the workflow's own defaults.

    Held by tests/pipeline/test_asking_for_advice.py.
    """
    return workflow.config_settings.overwrite_config


def config_files():
    """Paths of all config files, the workflow's own first. Held by tests/pipeline/test_config_errors.py."""
    return workflow.configfiles


def is_deployment_asked_for():
    """Whether `--software-deployment-method` was given. Held by tests/pipeline/test_config_errors.py."""
    return bool(workflow.deployment_settings.deployment_method)


logger.addFilter(is_news)
explain_dry_run()
