"""A Snakemake executor plugin that says that its jobs run on other hosts, as one for a cluster does."""

from dataclasses import replace

from snakemake.executors.local import Executor
from snakemake.executors.local import common_settings as here

__all__ = ["Executor", "common_settings"]
common_settings = replace(here, non_local_exec=True)
