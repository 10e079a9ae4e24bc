"""Lay a finished study out as a data set of published/."""

from sharebench.core import console
from sharebench.datasets import publish

if __name__ == "__main__":
    console.script(publish.publish, publish.Unpublishable)
