"""Run a workload alone on the exclusive device: its capacity, its output, its work per iteration."""

from sharebench.core import console
from sharebench.run import jobs

if __name__ == "__main__":
    console.script(jobs.calibrate, opening=jobs.of_run)
