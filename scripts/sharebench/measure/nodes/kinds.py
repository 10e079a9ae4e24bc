"""The kinds of node: the devices to share, and how they are put into the state of a strategy."""

from importlib import import_module
from pathlib import Path

from sharebench.measure.nodes.contract import DeviceOptions
from sharebench.measure.nodes.node import Node
from sharebench.model.capabilities import NODE_KINDS
from sharebench.model.config_nodes import NodeOptions


def _driver(kind: str) -> type[Node]:
    module, _, name = NODE_KINDS[kind].driver.rpartition(".")
    driver: type[Node] = getattr(import_module(f"{__package__}.{module}"), name)
    return driver


def open_node(kind: str, options: NodeOptions, folder: Path, number: int | None = None) -> Node:
    """A node of that kind; `options` is its config section, `folder` keeps its state. Imports only its driver.

    `number` is the device's, where a study measures on several.
    """
    node = _driver(kind)(options, folder)
    node.number = number
    return node


def named_devices(kind: str, options: NodeOptions) -> list[DeviceOptions]:
    """The devices that a config section of that kind names, each with its own section. Raises NodeError."""
    return _driver(kind).devices(options)
