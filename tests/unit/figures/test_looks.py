"""Colours, markers and dashes: the same for a strategy everywhere, and distinct for everybody."""

from itertools import combinations
from pathlib import Path

import numpy as np
import yaml
from matplotlib.colors import to_rgb
from unit.studies import base_config

from sharebench.model import strategies
from sharebench.model.config.load import load
from sharebench.read.figures.looks import BUILT_IN, COLORS, bar_label, strategy_looks

CONFIG = Path(__file__).parents[3] / "config"

# Machado, Oliveira & Fernandes, IEEE TVCG 2009, severity 1, for linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(color: str, vision: str = "normal") -> np.ndarray:
    """CIELAB of an sRGB colour as seen by someone."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(np.array(VISION[vision]) @ linear, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_a_built_in_strategy_has_one_look_and_one_name_whatever_the_catalogue() -> None:
    known = yaml.safe_load((CONFIG / "strategies.yaml").read_text())["strategy_catalogue"]
    assert set(BUILT_IN) <= set(known)
    few, many = strategy_looks(["mig", "mps"], []), strategy_looks(["aaa-mine", "exclusive", "mps", "mig"], ["mps"])
    assert all(few[name] == many[name] for name in BUILT_IN)
    assert bar_label("mps-limited", 7) == "MPS, 1/7 each × 7"


def test_further_strategies_come_after_those_of_the_catalogue() -> None:
    everything = strategy_looks(["mine", "mps"], ["zoned", "exclusive", "alien"])
    assert list(everything) == [*BUILT_IN, "mine", "alien", "zoned"]


def test_colours_differ_for_every_kind_of_colour_vision() -> None:
    for vision in VISION:
        for one, other in combinations(COLORS, 2):
            assert np.linalg.norm(lab(one, vision) - lab(other, vision)) > 19, (vision, one, other)


def test_the_strategies_of_the_default_study_differ_in_grey() -> None:
    # The A/A control is in no figure.
    catalogue = [name for name in strategies.all_strategies(load(base_config())) if not strategies.is_control(name)]
    shown = yaml.safe_load((CONFIG / "config.yaml").read_text())["strategies"]
    style = strategy_looks(catalogue, [])
    by_lightness = sorted((lab(style[name].color)[0], name) for name in shown)
    assert min(np.diff([lightness for lightness, _ in by_lightness])) > 12, by_lightness
    # There are fewer colours than strategies: those that share one differ in marker and dashes.
    assert len({style[name].color for name in catalogue}) == len(COLORS)
    assert len({style[name] for name in catalogue}) == len(catalogue)
