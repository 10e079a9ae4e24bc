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


def tidy_console():
    """Leave out what Snakemake says of its own workings; a dry run explains every job, whatever the profile hides."""
    if workflow.output_settings.dryrun:
        workflow.output_settings.quiet.intersection_update({Quietness.HOST})
    logger.addFilter(
        lambda record: record.levelno > logging.INFO
        or not str(record.msg).startswith(CHATTER)
    )


tidy_console()
