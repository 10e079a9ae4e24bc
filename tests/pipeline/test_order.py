"""How often the node is switched: every state once in each block, or every state once."""

from __future__ import annotations

import pytest
from pipeline.harness import Checkout

STATES = {"exclusive", "mig", "mps-limited n1", "mps-limited n2"}


@pytest.mark.parametrize(("order", "blocks"), [("blocks", (1, 2)), ("strategy", (0,))])
def test_every_state_is_set_once_in_a_block(untouched: Checkout, order: str, blocks: tuple[int, ...]) -> None:
    result = untouched.run(
        "results/tables/summary.md",
        cores=4,
        config=[f"order={order}", "strategies=[mig,mps-limited]", "workloads=alpha"],
    ).ok()
    assert len(result.cells) == 10
    assert sorted(map(str, result.moves)) == sorted(f"{state} block {block}" for state in STATES for block in blocks)
    assert "10 of 10 cells to measure" in result.out
    assert f"; {len(result.moves)} node switches; " in " ".join(result.out.split())
    confounded = "Each strategy was set up once, so differences between strategies are also differences in time."
    assert (confounded in (untouched.results / "tables/summary.md").read_text()) == (order == "strategy")
