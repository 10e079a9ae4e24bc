"""Numbers for sentences. The last lines of a run import this, so it stays light."""


def format_quantity(value: float) -> str:
    """A number with three or four significant digits and without exponent: `0.0253`, `38.0`, `485,700`."""
    if value < 99.95:
        return f"{value:#.3g}"
    return f"{value if value < 1000 else float(f'{value:.4g}'):,.0f}"


def format_ends(low: float | None, high: float | None) -> str:
    """`37.5 to 38.6`; empty without an interval, or one whose ends read the same."""
    ends = [format_quantity(end) for end in (low, high) if end is not None]
    return " to ".join(ends) if len({*ends}) == 2 else ""
