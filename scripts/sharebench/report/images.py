"""Figures as images within the report, within a budget."""

import base64
import html
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

PIXELS_PER_POINT = 1.9
"""Makes a figure's text of 7 points as large as the report's small print."""
IMAGES_BYTES = 1_600_000
"""So much all figures may take up together; base64 adds a third."""


class Image(NamedTuple):
    """A figure as a data URI, its width on the screen, and its text for those who do not see it."""

    uri: str
    width_pixels: int
    words: str


def images(
    folder: Path,
    names: Iterable[str],
    budget_bytes: int = IMAGES_BYTES,
    first: Collection[str] = (),
) -> dict[str, Image | None]:
    """Name → the figure in the files of that name: as svg, or as png where the svgs together are too large.

    None if not drawn, or no room, which the `first` get before all others.
    """
    files = {name: [path for kind in ("svg", "png") if (path := folder / f"{name}.{kind}").is_file()] for name in names}
    sizes = {name: paths[0].stat().st_size for name, paths in files.items() if paths}
    while sum(sizes.values()) > budget_bytes:
        largest = max(sizes, key=lambda name: (name not in first and sizes[name] > 0, sizes[name]))
        files[largest] = files[largest][1:]
        sizes[largest] = files[largest][0].stat().st_size if files[largest] else 0
    return {name: _image(folder / f"{name}.svg", paths[0]) if paths else None for name, paths in files.items()}


def _image(svg: Path, chosen: Path) -> Image:
    text = svg.read_text(encoding="utf-8")
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', text)
    about = re.search(r"<dc:description>(.*?)</dc:description>", text, re.DOTALL)
    kind = {".svg": "svg+xml", ".png": "png"}[chosen.suffix]
    return Image(
        uri=f"data:image/{kind};base64," + base64.b64encode(chosen.read_bytes()).decode(),
        width_pixels=round(PIXELS_PER_POINT * float(width[1])) if width else 640,
        words=html.unescape(about[1]) if about else "",
    )
