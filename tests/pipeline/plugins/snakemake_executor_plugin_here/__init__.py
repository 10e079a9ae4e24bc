"""A Snakemake executor plugin whose jobs run on this host: Snakemake's own executor under another name."""

from snakemake.executors.local import Executor, common_settings

__all__ = ["Executor", "common_settings"]
