"""Write down what is shared: the node's facts."""

from sharebench.core import console
from sharebench.run import jobs

if __name__ == "__main__":
    console.script(jobs.characterise_node, opening=jobs.of_run)
