"""Numbers for sentences. The last lines of a run import this, so it stays light."""


def format_quantity(value: float) -> str:
    """A number with three or four significant digits and without exponent: `0.0253`, `38.0`, `485,700`."""
    return f"{float(f'{value:.4g}'):,.0f}" if value >= 100 else f"{value:#.3g}"
