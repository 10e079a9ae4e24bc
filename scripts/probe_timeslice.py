"""Watch who is on the GPU when: the length of a time slice, and what a switch costs."""

from sharebench.core import console
from sharebench.run.jobs import of_run
from sharebench.run.timeslice import probe

if __name__ == "__main__":
    console.script(probe.measure, opening=of_run)
