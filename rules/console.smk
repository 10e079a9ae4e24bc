# What the terminal shows. Included before everything else.
import logging

from snakemake.logging import logger

CHATTER = (
    "Select jobs to execute",
    "Execute ",
    "Handing over execution",
    "Config file ",
    "Building DAG",
    "Using shell",
)


def tidy_console():
    """Leave out what Snakemake says of its own workings; a dry run explains every job, whatever the profile hides."""
    if workflow.output_settings.dryrun:
        workflow.output_settings.quiet.clear()
    logger.addFilter(
        lambda record: record.levelno > logging.INFO
        or not str(record.msg).startswith(CHATTER)
    )


tidy_console()
