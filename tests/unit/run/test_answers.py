"""The map of wrong answers: a stand-in of the tenant's Python that is wrong under one share, and the figure of it."""

import json
import sys
from pathlib import Path

import pytest

from sharebench.measure.nodes.contract import Grant, NodeError
from sharebench.measure.run import answers
from sharebench.model.answers import wrong_results
from sharebench.read.figures import answers as figure
from sharebench.read.figures.style import theme

# Half of the SMs are right.
STANDIN = """#!{python}
import json, os, sys
assert sys.argv[1:] == ["-m", "tenant.gpu.answers"], sys.argv
percent = int(os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
if percent == 7:
    sys.exit("no room")
print("a warning")
wrong = [dict(kind="linear", precision="fp16", shape=[2, 2], batch=1, error=None)] * (3 if percent == 33 else 0)
found = dict(sm_count=132 * percent // 100, checked=532, wrong=wrong, skipped={{}}, versions={{"cublas": "130100"}})
print(json.dumps(found | dict(largest_error={{"fp16": 0.005, "fp32": 1e-5}})))
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(STANDIN.format(python=sys.executable))
    path.chmod(0o755)
    return path


def test_each_share_has_a_client_of_its_own(python: Path) -> None:
    grant = Grant(0, 0, environment={"CUDA_VISIBLE_DEVICES": "GPU-0"})
    found = {percent: answers.checked_answers(python, grant, percent) for percent in (33, 50)}
    assert list(answers.rows(found)) == [
        (33, 43, 532, "fp16", 3, 0.005),
        (33, 43, 532, "fp32", 0, 1e-5),
        (50, 66, 532, "fp16", 0, 0.005),
        (50, 66, 532, "fp32", 0, 1e-5),
    ]
    with pytest.raises(NodeError, match="under 7 % could not be checked: no room"):
        answers.checked_answers(python, grant, 7)


def test_wrong_results_are_counted_for_each_precision_that_was_checked() -> None:
    found = {
        "wrong": [{"precision": name} for name in ("tf32", "fp16", "tf32")],
        "largest_error": {"fp32": 0, "fp16": 1},
    }
    assert list(wrong_results(found).items()) == [("fp16", 1), ("fp32", 0), ("tf32", 2)]


def test_the_shares_are_those_of_the_device_plugin_and_steps() -> None:
    assert {100 // tenants for tenants in range(1, 17)} <= set(answers.PERCENTS)
    assert {5, 35, 95} < set(answers.PERCENTS) and min(answers.PERCENTS) == 5


@pytest.mark.parametrize("wrong", [0, 3])
def test_the_figure_names_the_shares_that_are_wrong(tmp_path: Path, wrong: int) -> None:
    (tmp_path / "nodes").mkdir()
    same = {"checked": 532, "largest_error": {"fp16": 0.1, "fp32": 0.1}, "versions": {"cublas": "130100"}}
    shares = {"50": same | {"wrong": []}, "33": same | {"wrong": wrong * [{"precision": "fp16"}]}}
    probe = {"node": {"product": "A GPU"}, "percent": shares}
    (tmp_path / "nodes" / "answers.json").write_text(json.dumps(probe))
    with theme():
        page = figure.draw(tmp_path)
        figure.write_figure(tmp_path)
    said = " ".join(page.alt_text)
    assert ("fp16 is wrong under 33 percent" in said) == bool(wrong)
    assert "fp32 is wrong" not in said
    assert (tmp_path / "figures" / "answers.svg").exists()
