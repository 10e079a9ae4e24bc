"""How often the node is switched under another order than blocks."""

from pipeline.harness import Checkout

STATES = ("exclusive", "mig", "mps-limited n1", "mps-limited n2")


def test_order_by_strategy_sets_each_state_once(untouched: Checkout) -> None:
    result = untouched.run(
        "results/tables/summary.md",
        cores=4,
        config=["order=strategy", "strategies=[mig,mps-limited]", "workloads=alpha"],
    ).ok()
    assert len(result.cells) == 10
    assert sorted(map(str, result.switches)) == [f"{state} block 0" for state in STATES]
    assert "10 of 10 cells to measure" in result.out
    assert f"; {len(result.switches)} node switches; " in " ".join(result.out.split())
    note = "Each strategy was set up once, so differences between strategies are also differences in time."
    assert note in (untouched.results / "tables/summary.md").read_text()
