"""The figures as the report holds them: as data, with their words."""

import base64
import html
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PIXELS_PER_POINT = 1.9
"""Makes a figure's text of 7 points as large as the report's small print."""
BUDGET_BYTES = 1_600_000
"""So much all figures may take up together; base64 adds a third."""


def pictures(
    folder: Path, names: Iterable[str], budget_bytes: int = BUDGET_BYTES, suffix: str = ""
) -> dict[str, dict[str, Any] | None]:
    """Name → the figure in the files `name` + `suffix`: as svg, or as png where the svgs together are too large.

    None if not drawn, or no room.

    Each has a data URI, its width on the screen, and what it says in words.
    """
    files = {
        name: [path for kind in ("svg", "png") if (path := folder / f"{name}{suffix}.{kind}").is_file()]
        for name in names
    }
    sizes = {name: paths[0].stat().st_size for name, paths in files.items() if paths}
    while sum(sizes.values()) > budget_bytes:
        largest = max(sizes, key=lambda name: sizes[name])
        files[largest] = files[largest][1:]
        sizes[largest] = files[largest][0].stat().st_size if files[largest] else 0
    return {
        name: _picture(folder / f"{name}{suffix}.svg", paths[0]) if paths else None for name, paths in files.items()
    }


def _picture(svg: Path, chosen: Path) -> dict[str, Any]:
    text = svg.read_text(encoding="utf-8")
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', text)
    about = re.search(r"<dc:description>(.*?)</dc:description>", text, re.DOTALL)
    kind = {".svg": "svg+xml", ".png": "png"}[chosen.suffix]
    return {
        "uri": f"data:image/{kind};base64," + base64.b64encode(chosen.read_bytes()).decode(),
        "width_pixels": round(PIXELS_PER_POINT * float(width[1])) if width else 640,
        "words": html.unescape(about[1]) if about else "",
    }
