"""Loading of configs: accepted values and their normal form, and refusals."""

import copy
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from snakemake.cli import parse_config
from snakemake.utils import update_config
from unit.config_cases import COMMAND_LINES, MALFORMED
from unit.studies import S, W, base_config, config_with, refusal_line, study_with

from sharebench.model import capabilities, gpu_python, workload_modules
from sharebench.model.config import nodes
from sharebench.model.config.load import ConfigError, load
from sharebench.model.strategies import all_strategies
from sharebench.model.strategy import parse_limit
from sharebench.model.traffic import Load
from tenant import workload, workloads
from tenant.parameters import ParameterError

FRAMEWORKS = ("onnxruntime", "torch", "torchvision", "transformers", "ultralytics")


@pytest.mark.parametrize("case", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_config_is_refused_in_one_line_for_each_problem(case: tuple[dict[str, Any], list[str]]) -> None:
    changes, substance = case
    lines = refusal_line(changes).splitlines()
    assert all(line.startswith("config: ") and line.isprintable() for line in lines)
    assert any(all(part in line for part in substance) for line in lines), lines


@pytest.mark.parametrize("config", [None, [], "text", 3])
def test_a_config_that_is_not_a_mapping_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match=r"^config: the file: .* is not a mapping; write it as lines of key: value$"):
        load(config)


def test_all_problems_are_named_at_once_and_an_unknown_key_before_its_consequences() -> None:
    wrong = {"replica": [1], "replicas": [0], "strategies": ["mpss", "streams"], "window_seconds": "long"}
    starts = ["'replica' is an unknown key", "replicas: 0", "window_seconds: 'long'", "strategies: 'mpss'"]
    assert_lines(refusal_line(wrong | {"results": "scripts"}), [*starts, "results: 'scripts'", "strategies: 'streams'"])


def test_problems_across_keys_are_named_at_once() -> None:
    wrong = {"window_seconds": 0.5, "warmup.max_seconds": 99, "strategies": ["streams", "mps-limited", "mpss"]}
    starts = ["timeouts.start_seconds", "strategies: 'streams'", "strategies: 'mps-limited'", "window_seconds: 0.5"]
    assert_lines(refusal_line(wrong), ["strategies: 'mpss'", *starts])
    assert_lines(refusal_line({"exclude": ["mps/a", "mig/b"]}), ["exclude: 'mps/a'", "exclude: 'mig/b'"])


def test_every_faulty_entry_of_a_list_is_named() -> None:
    lines = ["replicas: -1 is below 1", "replicas: 2.5 is not a whole number", "replicas: 'two' is not a whole number"]
    assert_lines(refusal_line({"replicas": [-1, 2.5, "two"]}), lines)


TWO_LISTS = {"rate_hz": [1, 2], "concurrency": [1], "arrival": "poisson"}
FAULTY = {
    "a value of an entry": ({f"{W}.mine": {"kind": "http", "load": {"rate_hz": "x"}}}, [f"{W}.mine.load.rate_hz"]),
    "a sweep of two keys": (
        {f"{W}.mine": {"kind": "http", "command": ["x"], "load": TWO_LISTS}},
        [f"{W}.mine.load: concurrency and rate_hz are both lists"],
    ),
    "a misspelled key": ({"windowseconds": 30}, ["'windowseconds' is an unknown key"]),
    "a node": ({"node": "cpuu", "strategies": ["streams", "exclusive"]}, ["node: 'cpuu'"]),
    "an entry next to an unknown name": (
        {f"{W}.mine": {"kind": "http", "load": {"rate_hz": "x"}}, "strategies": ["mpss", "exclusive"]},
        [f"{W}.mine.load.rate_hz", "strategies: 'mpss'"],
    ),
    "a strategy": ({f"{S}.exclusive.mechanism": "alone", "contrasts": ["mps/exclusive"]}, [f"{S}.exclusive.mechanism"]),
}


@pytest.mark.parametrize("case", FAULTY.values(), ids=FAULTY)
def test_what_follows_from_a_fault_is_not_named_and_the_rest_is(case: tuple[dict[str, Any], list[str]]) -> None:
    changes, starts = case
    wrong = {"workloads": ["mine", "mine-rate_hz-1"]} if f"{W}.mine" in changes else {"workloads": ["matmul"]}
    late = {"warmup.max_seconds": 99, "contrasts": ["mps/mpss"]} | changes
    rest = ["timeouts.start_seconds"] + ["contrasts: 'mps/mpss'"] * ("contrasts" not in changes)
    assert_lines(refusal_line(wrong | late), [*starts, *rest])


LONG = "a" * 300
SERVER = {"kind": "http", "command": ["serve"], "port": 8000}
LONG_PATHS: dict[str, dict[str, Any]] = {
    "request.body_file": {"request": {"body_file": LONG}},
    "request.body_lines": {"request": {"body_lines": LONG}},
    "load.trace": {"load": {"arrival": "trace", "trace": LONG}},
    "manifest": {"manifest": LONG, "command": None},
    "command": {"command": [f"{{here}}/{LONG}"]},
}


@pytest.mark.parametrize("key", LONG_PATHS)
def test_a_path_that_no_file_system_takes_is_a_line(key: str) -> None:
    line = refusal_line({f"{W}.mine": SERVER | LONG_PATHS[key], "workloads": ["mine"]}).splitlines()[-1]
    assert line.startswith(f"config: {W}.mine.{key}: '{'{here}/' if key == 'command' else ''}aaa")
    assert "is not a file" in line or "is not there" in line


def test_a_long_path_of_another_host_is_passed_over() -> None:
    changes = {f"{W}.mine": SERVER | LONG_PATHS["request.body_file"], "workloads": ["mine"], "measured_elsewhere": True}
    study = study_with(changes)
    assert study.spec(study.cells[0])


def test_auto_also_finds_torch_outside_our_environment_and_a_word_is_looked_for_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "has_nvidia_gpu", lambda: True)
    monkeypatch.setattr(gpu_python, "GPU_ENVIRONMENT", Path("/no/such/environment"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".")
    # The second has what every tenant imports.
    for name, code in (("python3", 1), ("python", 0)):
        asked_for = "*torch*numpy*prometheus_client*"
        (tmp_path / name).write_text(f'#!/bin/sh\ncase "$2" in {asked_for}) exit {code};; esac\nexit 1\n')
        (tmp_path / name).chmod(0o755)
    for asked, found in (("auto", "python"), ("python3", "python3")):
        loaded = load(config_with({"node": "nvidia", "nvidia.python": asked}))
        assert loaded["nvidia"]["python"] == str(tmp_path / found)
        assert load(loaded) == loaded
    elsewhere = {"node": "nvidia", "nvidia.python": "auto", "measured_elsewhere": True}
    assert load(config_with(elsewhere))["nvidia"]["python"] == "auto"
    monkeypatch.setattr(gpu_python, "GPU_ENVIRONMENT", tmp_path / "python")
    assert load(config_with({"node": "nvidia"}))["nvidia"]["python"] == "auto"


def assert_lines(lines: str, starts: list[str]) -> None:
    for line, start in zip(lines.splitlines(), starts, strict=True):
        assert line.startswith(f"config: {start}"), line


@pytest.mark.parametrize("case", COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_values_of_the_command_line_are_converted(case: tuple[list[str], dict[str, Any]]) -> None:
    arguments, expected = case
    config = config_with({})
    update_config(config, parse_config(arguments))
    loaded = load(config)
    for key, value in expected.items():
        assert loaded[key] == value
        assert repr(loaded[key]) == repr(value)  # 2 and 2.0 are not the same text in a cell's spec


@pytest.mark.parametrize("part", [{"strategies": ["mig"]}, {"workloads": ["detector"]}])
def test_a_part_of_a_study_keeps_the_exclusions_of_the_whole(part: dict[str, Any]) -> None:
    whole = {"node": "simulated", "workloads": ["matmul", "detector"], "exclude": ["mps/matmul/n4"]}
    with_models = {f"{W}.{name}.simulated": {"serial_seconds": 1} for name in ("matmul", "detector")}
    assert load(config_with(whole | with_models | part))["exclude"] == ["mps/matmul/n4"]


def test_the_command_line_adds_a_strategy_and_a_workload() -> None:
    config = config_with({"node": "simulated"})
    update_config(
        config,
        parse_config(
            [
                "strategy_catalogue={half: {mechanism: mps, thread_percent: 50, replicas: [2]}}",
                "workload_catalogue={big: {module: matmul, params: {size: 512, fast: true, dtype: float32}}}",
                "strategies=[half]",
            ]
        ),
    )
    loaded = load(config)
    half = loaded[S]["half"]
    assert (half.mechanism, half.thread_percent, half.replicas) == (("mps",), 50, (2,))
    assert loaded[W]["big"].params == {"size": 512, "fast": True, "dtype": "float32"}
    assert loaded[W]["big"].load == Load()


def test_load_neither_changes_nor_shares_its_input() -> None:
    config = config_with({"replicas": "1,2", "warmup": None})
    before = copy.deepcopy(config)
    loaded = load(config)
    assert config == before
    loaded["strategies"].append("x")
    loaded[W]["matmul"].params["size"] = 0
    assert config == before


def test_a_finished_data_set_needs_nothing_of_this_node(tmp_path: Path) -> None:
    loaded = load(config_with({"from": str(tmp_path), "strategies": ["mps-limited"], "workloads": ["yolos"]}))
    assert loaded["from"] == [str(tmp_path)]


def test_every_built_in_strategy_runs_on_some_kind_of_node() -> None:
    for strategy in all_strategies(load(config_with({}))).values():
        able = capabilities.supporting_kinds(strategy, "device-plugin")
        assert ("kubernetes" if strategy.access else "nvidia") in able


@pytest.mark.parametrize("name", [name for name, entry in base_config()[W].items() if "tenants" not in entry])
def test_a_built_in_workload_runs_on_the_stand_in_or_is_refused_with_a_reason(name: str) -> None:
    entry = load(config_with({}))[W][name]

    def create() -> workload.Workload:
        return workloads.create(workloads.load_module(str(entry.module), "cpu"), entry.params, "cpu")

    if workload_modules.cpu_obstacle(entry):
        with pytest.raises(ParameterError):
            create()
    else:
        create().step()


@pytest.mark.parametrize("name", [name for name, entry in base_config()[W].items() if "tenants" in entry])
def test_a_built_in_mix_makes_a_study(name: str) -> None:
    needed = max(load(config_with({}))[W][tenant].min_window_seconds for tenant in base_config()[W][name]["tenants"])
    changes = {"workloads": name, "replicas": 2, "strategies": "mps", "window_seconds": max(needed, 1)}
    is_for_gpus = name.startswith("yolos")
    if is_for_gpus:
        with pytest.raises(ConfigError, match="impossible on the node 'cpu'"):
            load(config_with(changes))
    else:
        cells = study_with(changes).cells
        assert {cell.workload for cell in cells} == {name, *base_config()[W][name]["tenants"]}


def hide_framework(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an interpreter without this framework."""
    monkeypatch.setattr(workload_modules, "find_spec", lambda name: None if name == framework else object())


@pytest.mark.parametrize(
    "workload, framework",
    [
        ("detector", "onnxruntime"),
        ("yolos", "torch"),
        ("yolos", "transformers"),
        ("bert-512", "transformers"),
        ("resnet50", "torchvision"),
        ("yolov8", "ultralytics"),
        ("llm-decode", "torch"),
    ],
)
def test_a_workload_without_its_framework_is_refused(
    workload: str, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"workloads": [workload], "window_seconds": 10}
    monkeypatch.setattr(workload_modules, "find_spec", lambda name: object())
    load(config_with(wanted))
    hide_framework(framework, monkeypatch)
    with pytest.raises(ConfigError) as caught:
        load(config_with(wanted))
    line = str(caught.value)
    assert f"workloads: '{workload}' is impossible on the node 'cpu'" in line
    assert f"it needs {framework}, which {sys.executable} lacks" in line
    offered = re.findall(r"[a-z0-9-]+", line.split("use one that is possible (")[1].split(")")[0])
    assert "matmul" in offered and workload not in offered
    assert not {"matmul-256-graph", "matmul-16384", "resnet50-graph"} & set(offered)
    load(config_with({"workloads": offered, "window_seconds": 10}))
    load(config_with(wanted | {"node": "simulated", f"{W}.{workload}.simulated": {"serial_seconds": 1}}))


def test_frameworks_of_gpu_tenants_are_not_looked_for_in_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path)
    monkeypatch.setattr(workload_modules, "find_spec", lambda name: None)
    of_a_gpu = {"node": "nvidia", "nvidia.python": sys.executable, "window_seconds": 10}
    load(config_with(of_a_gpu | {"workloads": ["yolos", "matmul-16384", "resnet50-graph"]}))


def test_repeated_keys_are_found_without_libyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    (tmp_path / "twice.yaml").write_text("cpu: {cores: 2}\nseed: 1\nseed: 2\norder: random\norder: blocked\n")
    with pytest.raises(ConfigError) as caught:
        load(config_with({"repeats": 0}), [tmp_path / "twice.yaml"])
    starts = [f"{tmp_path}/twice.yaml, line 3: 'seed' is", f"{tmp_path}/twice.yaml, line 5: 'order' is", "repeats: 0"]
    assert_lines(str(caught.value), starts)


def test_a_name_in_another_mapping_a_list_or_a_value_is_no_repeated_key(tmp_path: Path) -> None:
    (tmp_path / "once.yaml").write_text("node: cpu\ncpu: {cores: 2, seed: [1, 1, 1]}\ncores: 1\n1: 2\n2: [cpu]\n")
    assert load(config_with({}), [tmp_path / "once.yaml"]) == load(config_with({}))


def test_a_repeated_key_of_an_entry_in_a_list_is_found(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("a: [{b: 1}, {b: 1, c: [d], b: 2}]\n")
    with pytest.raises(ConfigError, match=r"line 1: 'b' is there already; remove one$"):
        load(config_with({}), [tmp_path / "twice.yaml"])


UNUSED: list[dict[str, Any]] = [
    {"slo_ms": None},
    {"datasets": []},
    {"parts": []},
    {"survey": {"url": None, "hours": None}},
    {"survey": {"url": None, "hours": None, "step_seconds": 30}},
    {"kubernetes.drain": False},
    {"prometheus.buckets": None, "prometheus.dcgm": None},
]


@pytest.mark.parametrize("unused", UNUSED, ids=str)
def test_a_withdrawn_key_that_says_nothing_is_passed_over(unused: dict[str, Any]) -> None:
    assert load(config_with(unused)) == load(config_with({}))


@pytest.mark.parametrize("used", [{"url": "http://x", "hours": None}, {"url": None}, {"hours": None}, {}])
def test_a_survey_that_says_something_is_refused(used: dict[str, Any]) -> None:
    assert refusal_line({"survey": used}).startswith("config: survey:")


def test_a_study_of_other_machines_opens_without_its_node() -> None:
    elsewhere = {"node": "nvidia", "nvidia.python": "/nowhere/python", "window_seconds": 10}
    with pytest.raises(ConfigError):
        load(config_with(elsewhere))
    assert load(config_with(elsewhere | {"measured_elsewhere": True}))["node"] == "nvidia"


@pytest.mark.parametrize(
    "text, value",
    [
        ('FRAMEWORKS = {"cpu": ("x",)}', {"cpu": ("x",)}),
        ('FRAMEWORKS: dict[str, tuple[str, ...]] = {"cpu": ("x",)}', {"cpu": ("x",)}),
        ("FRAMEWORKS: dict[str, str]", None),
        ('FRAMEWORKS = {"cpu": NAMES}', None),
        ("frameworks = 3", None),
        ("FRAMEWORKS = (", None),
    ],
)
def test_a_constant_is_read_without_running_its_module(
    text: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_modules, "WORKLOAD_MODULES", tmp_path)
    (tmp_path / "mine.py").write_text(f"raise SystemExit\n{text}\n")
    assert workload_modules.module_constant("mine", "FRAMEWORKS") == value
    assert workload_modules.module_constant("none", "FRAMEWORKS") is None


@pytest.mark.parametrize("module", workload_modules.module_names())
def test_a_module_declares_the_frameworks_that_it_imports(module: str) -> None:
    text = (workload_modules.WORKLOAD_MODULES / f"{module}.py").read_text()
    imported = {name for name in FRAMEWORKS if re.search(rf"^\s*(import|from) {name}\b|import_{name}\(", text, re.M)}
    if re.search(r"tenant\.gpu\.(models|torch_device|conformance)", text):
        imported.add("torch")
    declared = workload_modules.module_constant(module, "FRAMEWORKS") or {}
    assert set(declared.get("cuda", ())) == imported


# Junk is any JSON-like value, in place of the whole config or of one of its parts.
WORDS = st.sampled_from(["auto", "null", "mps", "100/N", "true", "1", "nan", ",", "", "a+b", "\ud800", "\n"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS
KEYS = st.sampled_from(
    [*base_config(), *base_config()[S], *base_config()[W], "mechanism", "noise", "cores", "load"]
) | st.text(max_size=4)
JUNK = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


def paths(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = value.items() if isinstance(value, dict) else ()
    return [path, *(below for key, item in inner for below in paths(item, (*path, key)))]


@settings(max_examples=150)
@given(path=st.sampled_from(paths(base_config())), junk=JUNK)
def test_junk_is_refused_in_lines_or_loads_to_a_fixed_point(path: tuple[str, ...], junk: Any) -> None:
    config: Any = config_with({}) if path else junk
    if path:
        section = config
        for part in path[:-1]:
            section = section[part]
        section[path[-1]] = junk
    try:
        loaded = load(config)
    except ConfigError as error:
        assert all(line.startswith("config: ") for line in str(error).splitlines())
    else:
        assert repr(load(loaded)) == repr(loaded)


@pytest.mark.parametrize(
    ("limit", "replicas", "percent"),
    [("100/N", 1, 100), ("100/N", 3, 100 / 3), ("200/N", 1, 100), ("200/N", 2, 100), ("200/N", 5, 40), (25, 4, 25)],
)
def test_a_limit_is_parsed_as_percent(limit: float | str, replicas: int, percent: float) -> None:
    assert parse_limit(limit, replicas) == percent


def test_the_catalogue_has_the_limits_of_its_entries() -> None:
    half = {"mechanism": "mps", "thread_percent": "50"}
    strategies = all_strategies(load(config_with({"strategies": ["exclusive"], "replicas": [2], f"{S}.half": half})))
    assert strategies["exclusive"].replicas == (1,), "not an empty matrix"
    assert strategies["half"].limits(4)["thread_percent"] == 50 and not strategies["half"].depends_on_replicas
    limited = strategies["mps-limited"]
    assert limited.limits(4) == {"thread_percent": 25, "memory_percent": 25}
    assert limited.depends_on_replicas
    assert strategies["mps-limited-200"].limits(4) == {"thread_percent": 50, "memory_percent": None}
    assert strategies["mps"].limits(4) == {"thread_percent": None, "memory_percent": None}
    assert not strategies["mps"].depends_on_replicas
    assert strategies["mig-unequal"].layout(2) == ("3g", "2g", "1g", "1g")
    layered = strategies["mig-mps"]
    assert (layered.mechanism, layered.profile, layered.instances) == (("mig", "mps"), "3g", 2)
    assert layered.replicas is None
