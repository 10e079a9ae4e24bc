"""Measure one cell."""

from sharebench.core import console
from sharebench.run import jobs

if __name__ == "__main__":
    console.script(jobs.measure_cell, opening=jobs.of_run)
