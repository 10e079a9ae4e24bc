"""One answer: README, which-strategy, `sharebench advise` and the report's cards take the same strategy first."""

import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.edited import edited_table
from unit.studies import QUESTION

from sharebench.core.files import REPOSITORY
from sharebench.datasets import dataset
from sharebench.model.config.load import load
from sharebench.read.decide import advice_text, decide
from sharebench.read.decide.answers import MEASURED_ONCE, Answer, read_decision
from sharebench.read.decide.device import DeviceLimits
from sharebench.read.decide.elsewhere import Known
from sharebench.read.decide.options import strategy_options
from sharebench.read.decide.rows import AT_LEAST, SummaryRow
from sharebench.read.report.sections.advice import Advice
from sharebench.read.report.sections.cards import cards
from sharebench.read.statistics.intervals import Estimate
from sharebench.study.wrong_answers import is_never_wrong, wrong_answer

H200 = REPOSITORY / "published/h200"
NOTHING = Known({}, {}, {})
TAKES = {
    "mps": "MPS",
    "mps-limited": "MPS with limits",
    "time-slicing": "time-slicing",
    "exclusive": "a GPU each",
    "mps-half": "MPS, half of the SMs for the server",
}
"""The words of documents for the strategy that the advice takes first."""
Question = tuple[str, str, dict[str, Any]]
"""Study, workload, and what is asked."""
NO_SLO = {"latency_ms": None, "ttft_ms": None, "itl_ms": None, "tpot_ms": None}
UNTRUSTED = (("../h100/core", "fault"), ("inference", "performance"))
SMALL = ("yolos-graph", "resnet50-graph")
COPIES: list[Question] = [("../h100/core", name, {"tenants": 7}) for name in SMALL]
LLM: list[Question] = [("../h200-two/llm", x, {"tenants": n, "slo": NO_SLO}) for x, n in (("large", 3), ("small", 4))]
LIGHT = {"tenants": 7, "slo": {"latency_ms": 50}}
NEIGHBOUR = "a small model next to one that fills the GPU, its kernels milliseconds long"
ROWS: dict[str, list[Question]] = {
    "small models, copies of each other": COPIES,
    "the same, with batches of 32": [("../h200-two/batch", f"{name}-32", {"tenants": 7}) for name in SMALL],
    "each fills the GPU": [("../h100/core", "matmul-16384", {"tenants": 7})],
    NEIGHBOUR: [("../h200-two/neighbours", pair, {}) for pair in ("yolos-and-matmul", "yolos-and-memcopy")],
    "LLM servers of one model": LLM,
    "LLM servers of several models": [("llm", f"vllm-concurrency-{n}", {"tenants": 4, "slo": NO_SLO}) for n in (16, 4)],
    "an LLM server and three small services": [("../h200-two/server-and-services", "server-and-services", {})],
    "batch jobs of short kernels": [("jobs", "batch-matmul-100000", {"tenants": 4})],
    "tenants that may crash": [("load", "yolos-light", {"tenants": 3, "isolation": "fault"})],
    "untrusted tenants": [(study, "yolos-graph", {"tenants": 7, "isolation": kind}) for study, kind in UNTRUSTED],
    "light services with a latency SLO (p95 within 50 ms)": [("load", "yolos-light", LIGHT)],
}
BULLETS: dict[str, tuple[str, str, list[Question]]] = {
    "Small models next to copies of themselves: MPS.": ("mps", "MPS", COPIES),
    "A workload that fills the GPU: nothing helps.": ("exclusive", "only divides it", ROWS["each fills the GPU"]),
    "One big neighbour reverses it.": ("mps-limited", "MPS with limits", ROWS[NEIGHBOUR]),
    "One LLM server, not three.": ("exclusive", "One LLM server", LLM[:1]),
    "MPS does not contain faults.": ("time-slicing", "time-slicing", ROWS["tenants that may crash"]),
}
NOT_A_CHOICE = {
    "Kubernetes costs start-up, not compute.",
    "A share of the SMs can make answers wrong.",
    "Not measured yet:",
}


def answers(study: str, **asked: Any) -> list[Answer]:
    """What `sharebench advise` answers."""
    made_by = dataset.read_study(H200 / study)
    question = dataset.resolve_question(load(made_by.config | asked), [*asked], [], made_by)
    return list(decide.answer(read(study), question).answers)


def read(study: str) -> decide.Results:
    folder = H200 / study
    return decide.read_results(folder, folder, dataset.other_studies([folder]))


def answer_to(study: str, workload: str, asked: dict[str, Any]) -> Answer:
    (found,) = [each for each in answers(study, **asked) if each.workload == workload]
    return found


def block(document: str, name: str) -> str:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    return text.split(f"<!-- by rule: {name} -->")[1].split("<!-- end of rule -->")[0]


def test_every_row_of_which_strategy_takes_what_the_advice_takes() -> None:
    rows = [
        line.strip("| ").split(" | ") for line in block("docs/which-strategy.md", "which").splitlines() if "**" in line
    ]
    assert [row[0] for row in rows] == [*ROWS]
    for first, take, *_ in rows:
        # MIG was not measured there.
        measured = take.replace("**MIG, or ", "**").replace("one server", TAKES["exclusive"])
        place = 0
        for question in ROWS[first]:
            word = f"**{TAKES[answer_to(*question).strategy]}"
            assert word in measured[place:], question
            place += measured[place:].index(word)


def test_every_bullet_of_readme_says_what_the_advice_takes() -> None:
    bullets = re.findall(r"^- \*\*(.+?)\*\*(.*)$", block("README.md", "measured"), flags=re.MULTILINE)
    assert {title for title, _ in bullets} == {*BULLETS, *NOT_A_CHOICE}
    for title, text in bullets:
        if title in BULLETS:
            strategy, phrase, questions = BULLETS[title]
            assert phrase in f"{title}{text}"
            assert {answer_to(*each).strategy for each in questions} == {strategy}, title


@pytest.mark.parametrize("study", [path.parent.name for path in sorted(H200.glob("*/manifest.json"))])
def test_the_cards_of_every_report_take_what_the_advice_takes(study: str, tmp_path: Path) -> None:
    folder = H200 / study
    shutil.copytree(folder / "tables", tmp_path / "tables")
    shutil.copy(folder / "manifest.json", tmp_path)
    made_by = dataset.read_study(folder)
    question = dataset.resolve_question(made_by.config, [], [], made_by)
    decide.write_answer(decide.read_results(folder, tmp_path, dataset.other_studies([folder])), question)
    told = {each.workload: each for each in read_decision(tmp_path / "tables/advice.json").answers}
    shown = {card.workload: card for card in cards(Advice("", told, {}, has_price=False), {}, [], {})}
    asked = {each.workload: each for each in answers(study)}
    assert shown.keys() == asked.keys()
    for name, answer in asked.items():
        assert shown[name].strategy == ("" if answer.undecided else answer.strategy)
        assert [*map(tuple, shown[name].facts)] == [*answer.facts]
        assert not answer.undecided or made_by.config["repeats"] == 1 or answer.undecided.startswith("not ")


def test_the_gpus_that_a_device_plugin_cannot_share_so_are_not_advised() -> None:
    for answer in answers("inference", deploy="device-plugin", tenants=7):
        assert answer.strategy in ("mps-limited", "exclusive"), answer.workload
        assert not {"mps", "mps-limited-200", "streams"} & {each.strategy for each in answer.plans if each.devices}
    with_threads = answers("inference", one_process=True, tenants=7)
    assert any(each.devices for answer in with_threads for each in answer.plans if each.strategy == "streams")


def test_the_plugins_mps_that_was_not_measured_is_not_said_to_bring_nothing() -> None:
    of_what_was = "the plugin's MPS (mps-limited) was not measured; of what was: "
    for study, choice in (("jobs", "sequential on 1 GPU"), ("eager", "exclusive on 7 GPUs")):
        plugin, host = answers(study, deploy="device-plugin", tenants=7)[0], answers(study, tenants=7)[0]
        assert plugin.headline.startswith(of_what_was) and choice in plugin.headline
        assert f"it is {choice} (mps-limited was not measured)." in host.texts("scope")[0]
    isolated = answers("jobs", deploy="device-plugin", isolation="fault")[0]
    assert not isolated.not_measured, "MPS isolates no faults, with limits or without"
    assert not any(each.not_measured for each in answers("inference", deploy="device-plugin", tenants=7))
    assert not answers("eager", deploy="device-plugin", tenants=1)[0].not_measured, "one alone has no neighbours"
    nothing, once = "more replicas bring nothing", f"{MEASURED_ONCE}; ahead: "
    for study, workload, words in (("h200-two", "large", nothing), ("h100", "large-open", once)):
        servers = {each.workload: each for each in answers(f"../{study}/llm", deploy="device-plugin", slo=NO_SLO)}
        assert servers[workload].headline.startswith(f"{of_what_was}{words}")
    (mix,) = answers("../h200-two/server-and-services", deploy="device-plugin")
    assert mix.headline.startswith(f"{of_what_was}take time-slicing on 1 GPU instead of 4")


def test_faults_of_the_same_publication_count_with_their_source() -> None:
    found = answer_to("load", "yolos-light", {"tenants": 3})
    assert found.strategy == "mps"
    (caution,) = found.texts("hazard")
    assert "measured in h200/faults, h200/faults-again, h200/faults-mps: 11 of 11 neighbours died" in caution


def test_faults_alone_are_no_advice_but_count_for_a_study_of_loads() -> None:
    text = decide.answer(read("faults"), QUESTION).for_terminal()
    assert re.sub(r"\s+", " ", text).endswith(
        "none: except faults and tests of promises, nothing was run under a strategy that shares; its faults "
        "(tables/isolation.csv) count for a study of loads: advise LOADS FAULTS --isolation fault"
    )


def test_the_plugins_mps_and_that_of_a_host_have_one_name_but_share_no_faults_and_no_answers(tmp_path: Path) -> None:
    (caution,) = answer_to("pods", "resnet50-graph", {"tenants": 3}).texts("hazard")
    assert "documented: a fatal fault is reported to every client" in caution and "measured" not in caution
    assert "measured in h200/faults" in read("pods").known.faults["time-slicing"].basis, "it is the same in both"
    cluster = tmp_path / "mine/conformance/tables"
    cluster.mkdir(parents=True)
    shutil.copy(H200 / "pods/manifest.json", cluster.parent)
    (cluster / "conformance.csv").write_text("strategy,replicas,promise,measured,verdict\nmps,7,answers,2,broken\n")
    assert not decide.read_results(H200 / "jobs", H200 / "jobs", [cluster.parent]).known.wrong_answers


def test_memory_that_another_study_knows_counts_with_its_source() -> None:
    """In pods the device plugin hides the memory."""
    few = replace(read("pods"), most_tenants=400)
    assert all(row.tenants_that_fit is None for row in few.summary)
    question = QUESTION | {"tenants": 400, "slo": NO_SLO, "workloads": ["resnet50-graph"]}
    table = decide.answer(few, question).tables["capacity"]  # type: ignore[arg-type]
    (mps,) = table[(table["strategy"] == "mps") & (table["workload"] == "resnet50-graph")].to_dict("records")
    assert (mps["max_tenants_by_memory"], mps["max_tenants_by_memory_basis"]) == (153, "measured in h200/inference")
    limited = replace(few, known=replace(few.known, memory={("mps", "resnet50-graph"): (1, "measured in x")}))
    (found,) = decide.answer(limited, question).answers  # type: ignore[arg-type]
    assert "No plan with mps: memory holds 1 tenant, measured in x." in found.texts("no plan")


def test_wrong_answers_that_a_further_study_found_are_a_caution(tmp_path: Path) -> None:
    mine = tmp_path / "mine/conformance/tables"
    mine.mkdir(parents=True)
    shutil.copy(H200 / "jobs/manifest.json", mine.parent)
    rows = [f"mps,{n},answers,{wrong},{verdict}" for n, wrong, verdict in ((7, 2, "broken"), (3, 0, "kept"))]
    (mine / "conformance.csv").write_text("\n".join(["strategy,replicas,promise,measured,verdict", *rows, ""]))
    found = decide.read_results(H200 / "jobs", H200 / "jobs", [mine.parent]).known.wrong_answers
    assert found == {("mps", 7): "of 7 tenants 2 answers were wrong, measured in mine/conformance"}
    half = decide.read_results(H200 / "limits", H200 / "limits", [mine.parent])
    (answer,) = decide.answer(half, QUESTION | {"tenants": 7}).answers  # type: ignore[arg-type]
    assert answer.strategy == "mps" and f"Caution: {found['mps', 7]}." in answer.texts("hazard")


def test_only_half_precision_is_cautioned_of_shares_with_wrong_answers_and_by_the_words_of_plan() -> None:
    config = load(dataset.read_study(H200 / "inference").config)
    for entry in ("yolos-graph", "matmul-16384"):
        summary = [row for row in read("inference").summary if row.workload == entry]
        never = is_never_wrong(config, entry)
        (limited,) = [
            each
            for each in strategy_options(
                entry, summary, read("inference").strategies, DeviceLimits("nvidia", 7), NOTHING, never_wrong=never
            )
            if each.strategy == "mps-limited"
        ]
        warned = wrong_answer(config["strategy_catalogue"]["mps-limited"], 7)
        assert "14.3 %" in warned and "`replicas: 8`" in warned
        assert limited.hazards.get(7) == (warned if entry == "matmul-16384" else None)
        assert 4 not in limited.hazards, "a plan with four is judged with five, whose share is wrong"
    single = answers("inference", deploy="device-plugin", tenants=7)[0]
    assert single.strategy == "mps-limited" and not any("cuBLAS" in text for text in single.texts("hazard"))


def test_a_share_that_was_excluded_for_wrong_answers_has_a_remedy() -> None:
    plugin, host = (answers("limits", deploy=deploy, tenants=7)[0] for deploy in ("device-plugin", "auto"))
    assert plugin.strategy == "exclusive" and host.strategy == "mps"
    for found in (plugin, host):
        (why,) = [text for text in found.texts("no plan") if "mps-limited: 7 tenants: output_digest: " in text]
        assert "with 14.3 % of the SMs cuBLAS 13.1 computed" in why and "(NVIDIA's plugin: `replicas: 8`; " in why


def test_a_plan_wins_by_no_percentile_that_is_not_known_of_it() -> None:
    """Of time-slicing on three devices only the p50 is known, and of MPS with limits that its p95 is too long."""
    asked = QUESTION | {"tenants": 7, "slo": NO_SLO | {"latency_ms": 50}, "deploy": "device-plugin"}
    whole = read("load")
    found = decide.answer(replace(whole, summary=without_bounds(whole.summary)), asked).answers[0]  # type: ignore[arg-type]
    assert (found.strategy, found.devices, found.undecided) == ("exclusive", 7, "")
    assert found.texts("devices") == [
        "Fewer devices are not known to keep the SLO: time-slicing on 3 (only the p50 is known)."
    ]


def without_bounds(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    bound = f"latency_{AT_LEAST}_seconds"
    return [replace(row, metrics={name: each for name, each in row.metrics.items() if name != bound}) for row in rows]


def test_a_p95_that_is_not_known_but_surely_too_long_exceeds_the_slo() -> None:
    found = answer_to("load", "yolos-light", {"tenants": 3, "slo": NO_SLO | {"latency_ms": 50}})
    assert found.texts("no plan")[0] == (
        "No plan with time-slicing: lower end of the p95 of 3 tenants is 75.4 ms, more than 50 ms."
    )


def test_numbers_of_tenants_that_were_not_measured_are_judged_with_the_next_larger_one_and_named() -> None:
    for tenants, devices, judged in ((2, 1, 3), (4, 1, 5), (8, 2, 5)):
        found = answers("inference", deploy="device-plugin", tenants=tenants, slo=NO_SLO | {"latency_ms": 50})[0]
        assert (found.strategy, found.devices, found.judged_with) == ("mps-limited", devices, judged)
        each = tenants // devices
        assert f"Not measured with {each} tenants on a GPU: the numbers are those of {judged}." in found.texts("scope")


def test_a_hosts_answer_says_what_other_deployments_get_and_a_clusters_what_its_mps_is() -> None:
    host = answers("inference", tenants=7)[0]
    plugin = answers("inference", deploy="device-plugin", tenants=7)[0]
    assert host.strategy == "mps" and plugin.strategy == "mps-limited"
    assert host.texts("scope")[0].startswith(
        "mps is for a host; with NVIDIA's device plugin (--deploy device-plugin) it is mps-limited on 1 GPU"
    )
    in_pods = [each for each in answers("pods", tenants=3) if each.strategy == "mps"]
    assert in_pods and all("caps each of N tenants at 100/N" in each.texts("scope")[0] for each in in_pods)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["mps"], "there is no answer"),
        (["mps", "time-slicing"], "no winner is known; ahead is time-slicing on 3 GPUs"),
    ],
)
def test_another_deployment_without_a_winner_is_named(names: list[str], what: str) -> None:
    """Of time-slicing only medians are within this SLO."""
    whole = read("load")
    few = replace(whole, summary=without_bounds([row for row in whole.summary if row.strategy in names]))
    question = QUESTION | {"tenants": 7, "slo": NO_SLO | {"latency_ms": 50}, "workloads": ["yolos-light"]}
    (found,) = decide.answer(few, question).answers  # type: ignore[arg-type]
    (said,) = [text for text in found.texts("scope") if text.startswith("mps is for a host; ")]
    assert f"with NVIDIA's device plugin (--deploy device-plugin) {what}" in said


def test_an_slo_that_every_request_kept_is_known_to_be_kept() -> None:
    """Of ResNet-50 alone too few iterations are independent for a p95, but none took 4 ms."""
    for asked, gpus in (({"tenants": 1}, 1), ({"tenants": 7, "isolation": "fault"}, 7)):
        found = answer_to("inference", "resnet50-graph", {"slo": NO_SLO | {"latency_ms": 40}, **asked})
        assert (found.strategy, found.devices, found.undecided) == ("exclusive", gpus, "")
        assert found.plans[0].verdict == "meets the SLO by its max"


def test_a_price_says_hours_and_load_and_what_a_million_costs() -> None:
    found = answers("inference", tenants=7, price_per_hour=4)[0]
    (month,) = [fact for fact in found.facts if fact.name == "a month"]
    assert month.value == "$2,880" and month.note == "720 hours, 192/s in all at full load; a GPU each $20,160, 497/s"
    dollars = {each.strategy: each.dollars for each in found.plans if each.devices}
    assert (dollars["mps"], dollars["exclusive"]) == ("5.80", "15.6")


@pytest.mark.parametrize("study", ["inference", "interference"])
def test_with_one_repeat_there_is_no_winner(study: str) -> None:
    whole = read(study)
    once = replace(
        whole, **{kind: [without_intervals(row) for row in getattr(whole, kind)] for kind in ("summary", "mixes")}
    )
    found = decide.answer(once, QUESTION | {"tenants": 7, "slo": NO_SLO}).answers  # type: ignore[arg-type]
    assert len(found) > 4
    for each in found:
        assert each.undecided == MEASURED_ONCE and each.headline.startswith(f"{MEASURED_ONCE}; ahead: ")


def without_intervals(row: SummaryRow) -> SummaryRow:
    return replace(row, metrics={name: Estimate(each.value) for name, each in row.metrics.items()})


def test_several_workloads_are_named_before_what_holds_for_them() -> None:
    text = " ".join(advice_text.advice_for_terminal(answers("inference", tenants=7), "").split())
    assert "- yolos-graph, resnet50-graph, matmul-256-graph: mps is for a host; with NVIDIA's device plugin" in text
    assert "- bert: mps-limited-200 is for a host; " in text


def test_what_is_excluded_is_not_said_to_bring_nothing() -> None:
    found = answer_to("inference", "resnet50-graph", {"isolation": "fault"})
    assert found.headline.startswith("no sharing with fault isolation brings anything; take a GPU each, or a queue")
    assert answer_to("inference", "matmul-16384", {"tenants": 7}).headline.startswith("sharing brings nothing; take")


def test_no_sharing_wins_whose_gain_includes_one() -> None:
    (found,) = [each for each in answers("inference", tenants=7, isolation="fault") if each.workload == "bert"]
    assert found.undecided == "not certain that sharing brings anything (× 1.56, 0.925 to 2.63)"
    assert "ahead: time-slicing on 1 GPU" in found.headline
    free = answer_to("inference", "bert", {"tenants": 7})
    assert not free.undecided and "(× 4.94 of one alone, 2.91 to 8.37)" in free.sentence


def test_a_reason_of_every_repeat_is_told_once() -> None:
    (mps,) = [text for text in answer_to("load", "yolos-heavy", {"tenants": 7}).texts("no plan") if "with mps:" in text]
    assert mps == (
        "No plan with mps: 7 tenants: queue_growth: tenants 1, 3, 6: requests came 105 to 116% faster than they were "
        "served, so that the queue grew."
    )


def test_an_answer_without_more_facts_ends_with_its_plan() -> None:
    found = answer_to("interference", "matmul-16384+matmul-16384", {})
    assert len(found.facts) == 1 and found.sentence == f"{found.workload}: {found.headline}."


def test_fewer_jobs_than_were_measured_are_judged_with_the_next_larger_number() -> None:
    found = answer_to("jobs", "batch-matmul-100000", {"tenants": 2})
    assert (found.strategy, found.per_device, found.judged_with) == ("mps", 2, 4)


def test_the_speed_of_jobs_is_over_a_queue() -> None:
    found = answer_to("jobs", "batch-matmul-100000", {"tenants": 7})
    assert found.texts("gain") == ["Speed over a queue: time-slicing × 0.0760 with 7 tenants."]
    assert "speed over a queue × 5.50" in found.sentence


def test_a_rival_without_an_interval_leaves_the_winner_of_jobs(tmp_path: Path) -> None:
    folder = H200 / "jobs"
    shutil.copytree(folder / "tables", tmp_path / "tables")
    shutil.copy(folder / "manifest.json", tmp_path)
    with edited_table(tmp_path / "tables/jobs.csv") as jobs:
        jobs.loc[jobs["strategy"] == "time-slicing", ["speedup_low", "speedup_high"]] = math.nan
    made_by = dataset.read_study(folder)
    question = dataset.resolve_question(made_by.config, [], [], made_by)
    found = decide.answer(decide.read_results(folder, tmp_path, []), question).answers
    assert [(each.strategy, each.undecided) for each in found if "matmul" in each.workload] == [("mps", "")]


def test_a_mix_holds_its_tenants_to_their_limits_but_to_no_empty_ones() -> None:
    plain = answer_to("interference", "training-4096+yolos", {"slo": NO_SLO})
    of_none, of_all = (
        answer_to("interference", "training-4096+yolos", {"slo": NO_SLO | {"workloads": {"yolos": limits}}})
        for limits in ({}, {"latency_ms": 1})
    )
    assert of_none == plain and plain.plans != of_all.plans
    assert any("yolos has" in text for text in of_all.texts("no plan"))
