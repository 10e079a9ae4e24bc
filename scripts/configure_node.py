"""Set the node to a strategy, so that one that cannot be set up fails once."""

from sharebench.core import console
from sharebench.run import jobs

if __name__ == "__main__":
    console.script(jobs.configure_node, opening=jobs.of_run)
