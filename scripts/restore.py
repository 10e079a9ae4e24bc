"""Bring the node back to its original state."""

from sharebench.core import console
from sharebench.run import jobs

if __name__ == "__main__":
    console.script(jobs.restore, opening=jobs.of_run)
