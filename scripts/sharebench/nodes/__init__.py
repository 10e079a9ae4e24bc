"""The kinds of node: what is shared, and how it is put into the state of a strategy."""

from importlib import import_module
from pathlib import Path

from sharebench.core.capabilities import KINDS
from sharebench.core.study_config import NodeOptions
from sharebench.nodes.node import Node


def open_node(kind: str, options: NodeOptions, folder: Path) -> Node:
    """The node of that kind; `options` is its config section, `folder` keeps its state. Imports only its driver."""
    module, _, name = KINDS[kind].driver.rpartition(".")
    driver: type[Node] = getattr(import_module(f"{__name__}.{module}"), name)
    return driver(options, folder)
