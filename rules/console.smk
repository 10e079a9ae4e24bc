# What the terminal shows. Included before everything else.
import logging

from snakemake.logging import logger
from snakemake.settings.enums import Quietness

CHATTER = (
    "Assuming unrestricted shared filesystem",
    "Building DAG",
    "Complete log",
    "Conda environments: ignored",
    "Config file ",
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
FAILED_COMMAND = "RuleException:\nCalledProcessError"


def is_news(record):
    """Whether a person wants to read it; of a failed job we show the log, not the command with its long arguments."""
    text = str(record.msg)
    if record.levelno > logging.INFO:
        return not text.startswith(FAILED_COMMAND)
    return not text.startswith(CHATTER)


def tidy_console():
    """Leave out what Snakemake says of its own workings; a dry run explains every job, though the profile hides it."""
    quiet = workflow.output_settings.quiet
    if workflow.output_settings.dryrun and quiet == BY_PROFILE:
        quiet.intersection_update({Quietness.HOST})
    logger.addFilter(is_news)


tidy_console()
