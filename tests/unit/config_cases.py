"""Configs that are refused, with what the line must say, and command lines, with what they become."""

from __future__ import annotations

import copy
import datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from snakemake.utils import update_config
from unit.config_cases_cluster import CLUSTER, KUBERNETES, S
from unit.config_cases_neighbours import NEIGHBOURS, SIMULATED, W

from sharebench import workload_modules
from sharebench.config import ConfigError, load

CONFIG = Path(__file__).parents[2] / "config"


@cache
def files() -> dict[str, Any]:
    """The three files that the Snakefile loads, as one config."""
    merged: dict[str, Any] = {}
    for name in ("strategies", "workloads", "config"):
        update_config(merged, yaml.safe_load((CONFIG / f"{name}.yaml").read_text()))
    return merged


def study(changes: dict[str, Any]) -> dict[str, Any]:
    """The default config on the CPU stand-in with some keys, dotted, set to other values."""
    config = copy.deepcopy(files()) | {"node": "cpu"}
    for key, value in changes.items():
        *outer, last = key.split(".")
        section = config
        for part in outer:
            section = section.setdefault(part, {})
        section[last] = value
    return config


def refusal(changes: dict[str, Any]) -> str:
    """The line with which the default config with these changes is refused where only onnxruntime is installed."""

    def installed(name: str) -> object | None:
        return object() if name == "onnxruntime" else None

    with mock.patch.object(workload_modules, "find_spec", installed), pytest.raises(ConfigError) as caught:
        load(study(changes))
    return str(caught.value)


DEEP: list[Any] = []
DEEP.append(DEEP)


# What is changed, and what the line must say: key, value, remedy.
MALFORMED: dict[str, tuple[dict[str, Any], list[str]]] = {
    # unknown keys
    "typo": ({"window_second": 1}, ["'window_second'", "unknown key", "did you mean 'window_seconds'?"]),
    "nothing like it": ({"qqq": 1}, ["'qqq'", "unknown key", "Known: results, node, strategies"]),
    "upper case": ({"Replicas": [1]}, ["'Replicas'", "did you mean 'replicas'?"]),
    "nested typo": ({"warmup.max_second": 1}, ["warmup:", "'max_second'", "did you mean 'max_seconds'?"]),
    "deep typo": (
        {"simulated.noise.cell_vc": 0},
        ["simulated.noise:", "'cell_vc'", "did you mean 'cell_cv'?"],
    ),
    "strategy typo": ({f"{S}.mps.thread_precent": 5}, [f"{S}.mps:", "did you mean 'thread_percent'?"]),
    "workload typo": ({f"{W}.matmul.modul": "x"}, [f"{W}.matmul:", "did you mean 'module'?"]),
    "load typo": ({f"{W}.matmul.load.rate": 5}, [f"{W}.matmul.load:", "'rate'", "rate_hz"]),
    "nested typo of a cluster": ({"kubernetes.nod": "x"}, ["kubernetes:", "'nod'", "did you mean 'node'?"]),
    "nested typo of a GPU": ({"nvidia.pyton": "x"}, ["nvidia:", "'pyton'", "did you mean 'python'?"]),
    "no space after the colon": ({"warmup": {"max_seconds:3": ""}}, ["warmup:", "space after the colon"]),
    # strategies
    "unknown strategy": (
        {"strategies": ["mpss"]},
        ["strategies:", "'mpss'", "mean 'mps'?", "Known: exclusive"],
    ),
    "strategy in capitals": ({"strategies": ["MIG"]}, ["strategies:", "'MIG'", "did you mean 'mig'?"]),
    "strange strategy": (
        {"strategies": ["zzz"]},
        ["strategies:", "'zzz'", "use a known one", "time-slicing"],
    ),
    "one unknown of two": (
        {"strategies": "mps,time-slice"},
        ["'time-slice'", "did you mean 'time-slicing'?"],
    ),
    "comma at the end": ({"strategies": "mps,"}, ["strategies:", "''", "not in the catalogue"]),
    "no strategies": ({"strategies": []}, ["strategies:", "[]", "empty", "name at least one"]),
    "strategies without value": ({"strategies": None}, ["strategies:", "empty", "name at least one"]),
    "strategies blank": ({"strategies": " "}, ["strategies:", "empty", "name at least one"]),
    "strategy twice": (
        {"strategies": ["mps", "mig", "mps"]},
        ["strategies:", "'mps'", "listed twice", "remove"],
    ),
    "strategies as mapping": (
        {"strategies": {"mps": 1}},
        ["strategies:", "not a list", "default [exclusive"],
    ),
    "strategies in a list": ({"strategies": [["mps"]]}, ["strategies:", "[mps]", "is not text"]),
    "null strategy": ({"strategies": [None]}, ["strategies:", "null", "is not text"]),
    "path as strategy": ({"strategies": ["../mps"]}, ["strategies:", "'../mps'", "mean 'mps'?"]),
    # what this kind of node can never do
    "limits on the stand-in": (
        {"strategies": ["mps-limited"]},
        ["strategies:", "'mps-limited'", "'cpu'", "thread_percent and memory_percent", "can: nvidia, simulated"],
    ),
    "streams on the stand-in": (
        {"strategies": ["streams"]},
        ["'streams'", "'cpu'", "no streams", "can: nvidia, simulated"],
    ),
    "baseline on the stand-in": ({"baseline": "streams"}, ["baseline:", "'streams'", "can: nvidia, simulated"]),
    "nvidia": ({"node": "nvidia"}, ["node:", "'nvidia'", "no NVIDIA GPU", "use cpu for the stand-in, or simulated"]),
    "streams in a cluster": (
        KUBERNETES | {"strategies": ["streams"]},
        ["strategies:", "'streams'", "'kubernetes'", "it has no streams", "can: nvidia, simulated"],
    ),
    "another share in a cluster": (
        KUBERNETES | {"strategies": ["mps-limited-200"]},
        ["'mps-limited-200'", "'kubernetes'", "caps every tenant at 100/N, no other thread_percent"],
    ),
    "namespace": (
        KUBERNETES | {"kubernetes.namespace": "My Space"},
        ["kubernetes.namespace:", "'My Space'", "cannot be a namespace"],
    ),
    # replicas, repeats, seed
    "no tenant": ({"replicas": [0]}, ["replicas:", "0", "below 1", "use 1 or more"]),
    "fewer than none": ({"replicas": "-2"}, ["replicas:", "-2", "below 1"]),
    "half a tenant": (
        {"replicas": [1, 1.5]},
        ["replicas:", "1.5", "not a whole number", "default [1, 2, 4]"],
    ),
    "tenants in words": ({"replicas": ["1", "two"]}, ["replicas:", "'two'", "not a whole number"]),
    "true tenants": ({"replicas": [True]}, ["replicas:", "true", "not a whole number"]),
    "no replicas": ({"replicas": []}, ["replicas:", "[]", "empty"]),
    "replicas twice": ({"replicas": ["2", 2.0]}, ["replicas:", "2", "listed twice"]),
    "too many tenants to count": ({"replicas": [10**30]}, ["replicas:", "2^53", "smaller"]),
    "no repeats": ({"repeats": 0}, ["repeats:", "0", "below 1"]),
    "list of repeats": ({"repeats": [3]}, ["repeats:", "[3]", "not a whole number", "default 3"]),
    "repeats without value": ({"repeats": None}, ["repeats:", "null", "not a whole number", "default 3"]),
    "negative seed": ({"seed": -1}, ["seed:", "-1", "below 0"]),
    "seed in words": ({"seed": "random"}, ["seed:", "'random'", "not a whole number"]),
    # the question
    "SLO with unit": ({"slo_ms": "50ms"}, ["slo_ms:", "'50ms'", "is not a number or null", "milliseconds"]),
    "no time at all": ({"slo_ms": 0}, ["slo_ms:", "0", "not above 0"]),
    "advice for nobody": ({"tenants": 0}, ["tenants:", "0", "below 1"]),
    "half a tenant to advise": ({"tenants": 2.5}, ["tenants:", "2.5", "not a whole number"]),
    "isolation typo": ({"isolation": "faults"}, ["isolation:", "'faults'", "did you mean 'fault'?"]),
    "free devices": ({"price_per_hour": 0}, ["price_per_hour:", "0", "not above 0"]),
    "price in words": ({"price_per_hour": "$4"}, ["price_per_hour:", "'$4'", "not a number"]),
    "class typo": (
        {f"{W}.matmul.class": "batch"},
        [f"{W}.matmul.class:", "'batch'", "Known: auto, inference-light, inference-heavy, small-batch, gpu-intensive"],
    ),
    # window, order, baseline, results, from
    "no window": ({"window_seconds": 0}, ["window_seconds:", "0", "not above 0"]),
    "window with unit": ({"window_seconds": "2s"}, ["window_seconds:", "'2s'", "not a number", "in seconds"]),
    "endless window": ({"window_seconds": float("inf")}, ["window_seconds:", "infinite", "smaller"]),
    "endless window as text": ({"window_seconds": "inf"}, ["window_seconds:", "'inf'", "not a number"]),
    "no number at all": ({"window_seconds": float("nan")}, ["window_seconds:", "infinite or larger"]),
    "window too short": ({"window_seconds": 0.5}, ["window_seconds:", "0.5", "'matmul'", "use 1 or more"]),
    "order": ({"order": "block"}, ["order:", "'block'", "did you mean 'blocks'?"]),
    "baseline typo": (
        {"baseline": "exlusive"},
        ["baseline:", "'exlusive'", "did you mean 'exclusive'?", "none"],
    ),
    "baseline switched off": ({"baseline": False}, ["baseline:", "false", "not text", "none turns it off"]),
    "baseline of two": (
        {"baseline": "mps", f"{S}.mps.replicas": [2]},
        ["baseline:", "'mps'", "[2]", "never runs one tenant", "choose another"],
    ),
    "results without name": ({"results": ""}, ["results:", "''", "empty"]),
    "results in home": ({"results": "~/r"}, ["results:", "'~/r'", "no leading ~"]),
    "results with a wildcard": ({"results": "r/{x}"}, ["results:", "'r/{x}'", "cannot be a folder"]),
    "results on two lines": ({"results": "a\nb"}, ["results:", "cannot be a folder"]),
    "results as list": ({"results": ["a"]}, ["results:", "[a]", "not text", "default 'results'"]),
    "from nowhere": ({"from": "no/such/folder"}, ["from:", "'no/such/folder'", "not an existing folder"]),
    "from a file": ({"from": __file__}, ["from:", "not an existing folder", "finished study"]),
    # sections
    "text for a section": ({"warmup": "fast"}, ["warmup:", "'fast'", "not a mapping", "{key: value}"]),
    "list for a section": ({"simulated": [1]}, ["simulated:", "[1]", "not a mapping"]),
    "no iterations": ({"warmup.min_iterations": 0}, ["warmup.min_iterations:", "0", "below 1"]),
    "too tolerant": ({"warmup.tolerance_percent": 101}, ["warmup.tolerance_percent:", "101", "100 or less"]),
    "no time to start": ({"timeouts.start_seconds": 0}, ["timeouts.start_seconds:", "0", "not above 0"]),
    "core words": ({"cpu.cores": "all"}, ["cpu.cores:", "'all'", "auto"]),
    "no cores": ({"cpu.cores": []}, ["cpu.cores:", "[]", "empty", "auto"]),
    "core twice": ({"cpu.cores": "0,1,0"}, ["cpu.cores:", "0", "listed twice"]),
    "negative core": ({"cpu.cores": [-1]}, ["cpu.cores:", "-1", "below 0"]),
    "a number of cores for their names": (
        {"cpu.cores": 2},
        ["cpu.cores:", "2 is the number of no core", "0, 1, or auto"],
    ),
    "no SMs": ({"simulated.sms": 0}, ["simulated.sms:", "0", "below 1"]),
    "all noise": ({"simulated.noise.cell_cv": 2}, ["simulated.noise.cell_cv:", "2", "1 or less"]),
    "negative overhead": (
        {"simulated.time_slicing_overhead": -0.1},
        ["time_slicing_overhead:", "-0.1", "below 0"],
    ),
    # the strategy catalogue
    "catalogue without entries": (
        {S: {}},
        ["strategies:", "'exclusive'", "not in the catalogue", "nothing is known"],
    ),
    "catalogue as list": ({S: ["mps"]}, [f"{S}:", "not a mapping"]),
    "no mechanism": ({f"{S}.new": {}}, [f"{S}.new:", "mechanism is missing", "add it"]),
    "unknown mechanism": (
        {f"{S}.new": {"mechanism": "mgi"}},
        [f"{S}.new.mechanism:", "'mgi'", "mean 'mig'?"],
    ),
    "empty mechanism": ({f"{S}.new": {"mechanism": []}}, [f"{S}.new.mechanism:", "empty"]),
    "three layers": (
        {f"{S}.new": {"mechanism": "mig,mps,time-slicing"}},
        [f"{S}.new.mechanism:", "more than 2 entries", "outer one first"],
    ),
    "layers upside down": (
        {f"{S}.new": {"mechanism": ["mps", "mig"], "profile": "3g", "instances": 2}},
        [f"{S}.new.mechanism:", "[mps, mig]", "no layers", "use [mig, time-slicing] or [mig, mps]"],
    ),
    "layers without instances": (
        {f"{S}.new": {"mechanism": ["mig", "mps"], "profile": "3g"}},
        [f"{S}.new.instances:", "null", "layers", "such as 2"],
    ),
    "mig without profile": ({f"{S}.new": {"mechanism": "mig"}}, [f"{S}.new.profile:", "null", "such as 1g"]),
    "profile without mig": (
        {f"{S}.mps.profile": "1g"},
        [f"{S}.mps.profile:", "'1g'", "without mig", "remove"],
    ),
    "unequal profiles beside one": (
        {f"{S}.mig.profiles": ["1g", "2g"]},
        [f"{S}.mig.profile:", "'1g'", "beside profiles", "remove"],
    ),
    "profiles without mig": ({f"{S}.mps.profiles": ["1g"]}, [f"{S}.mps.profiles:", "[1g]", "without mig", "remove"]),
    "instances beside profiles": (
        {f"{S}.mig-mps.profile": None, f"{S}.mig-mps.profiles": ["3g", "2g"]},
        [f"{S}.mig-mps.instances:", "2", "beside profiles", "remove"],
    ),
    "too many profiles": ({f"{S}.mig-unequal.profiles": ["1g"] * 8}, [f"{S}.mig-unequal.profiles:", "more than 7"]),
    "wrong one of profiles": (
        {f"{S}.mig-unequal.profiles": ["big"]},
        [f"{S}.mig-unequal.profiles:", "big", "such as 1g, 3g"],
    ),
    "wrong profile": ({f"{S}.mig.profile": "one"}, [f"{S}.mig.profile:", "'one'", "such as 1g, 3g"]),
    "a warm-up as long as the wait for it": (
        {"warmup.max_seconds": 60},
        ["timeouts.start_seconds:", "60", "warmup.max_seconds", "set more"],
    ),
    "instances without mig": ({f"{S}.mps.instances": 2}, [f"{S}.mps.instances:", "2", "without mig"]),
    "limit without mps": (
        {f"{S}.time-slicing.thread_percent": 50},
        [f"{S}.time-slicing.thread_percent:", "50", "no effect without mps", "remove it"],
    ),
    "memory limit without mps": (
        {f"{S}.mig.memory_percent": "100/N"},
        [f"{S}.mig.memory_percent:", "'100/N'", "without mps"],
    ),
    "limit above all": ({f"{S}.mps.thread_percent": 150}, [f"{S}.mps.thread_percent:", "150", "100 or less"]),
    "limit of nothing": ({f"{S}.mps.memory_percent": 0}, [f"{S}.mps.memory_percent:", "0", "not above 0"]),
    "limit in words": ({f"{S}.mps.thread_percent": "half"}, ["'half'", "neither a number", "such as 100/N"]),
    "limit by M": ({f"{S}.mps.thread_percent": "100/M"}, ["'100/M'", "such as 100/N"]),
    "exclusive for two": (
        {f"{S}.exclusive.replicas": [1, 2]},
        [f"{S}.exclusive.replicas:", "[1, 2]", "one tenant", "set [1]"],
    ),
    "own replicas empty": ({f"{S}.mps.replicas": []}, [f"{S}.mps.replicas:", "empty"]),
    "again but different": (
        {f"{S}.exclusive-again.mechanism": "mps"},
        [f"{S}.exclusive-again:", "not the same as 'exclusive'", "make them equal"],
    ),
    "again of nothing": ({f"{S}.zoned-again": {"mechanism": "mps"}}, ["zoned-again:", "not the same as 'zoned'"]),
    "contrast of one": ({"contrasts": ["mps"]}, ["contrasts:", "'mps'", "such as mps/time-slicing"]),
    "contrast with itself": ({"contrasts": ["mps/mps"]}, ["contrasts: 'mps/mps'", "with itself", "name two"]),
    "contrast with what is not there": (
        {"contrasts": ["mps/time-slicin"]},
        ["contrasts: 'mps/time-slicin'", "did you mean 'time-slicing'?"],
    ),
    "contrast of a queue": (
        {"contrasts": ["mps/sequential"]},
        ["contrasts: 'mps/sequential'", "'sequential' is a queue", "tables/jobs.csv", "leave it out"],
    ),
    "contrast that never meets": (
        {"contrasts": ["mps/exclusive"], "replicas": [2, 4]},
        ["contrasts: 'mps/exclusive'", "never have the same number of tenants"],
    ),
    "a part that is not there": ({"parts": ["config"]}, ["parts: 'config'", "no cells/"]),
    "one data set": ({"datasets": ["config"]}, ["datasets:", "is one data set", "give two"]),
    "the same data set twice": ({"datasets": ["config", "config/"]}, ["datasets:", "is one data set"]),
    "a data set that is not there": ({"datasets": ["config", "nowhere"]}, ["datasets: 'nowhere'", "not an existing"]),
    "three data sets": ({"datasets": ["a", "b", "c"]}, ["datasets:", "more than 2"]),
    "an exclusion that is no cell": ({"exclude": ["mps/matmul/4"]}, ["exclude", "'mps/matmul/4'", "mps/yolos/n7"]),
    "an exclusion of nothing": ({"exclude": ["mps/matmul/n3"]}, ["exclude:", "'mps/matmul/n3'", "one is ", "/n"]),
    "an exclusion of no strategy": (
        {"exclude": ["mpss/matmul"], "strategies": ["mig"]},
        ["exclude:", "'mpss/matmul'", "change it, or remove it"],
    ),
    "an exclusion of everything": ({"exclude": ["*/*"]}, ["exclude:", "leaves no cell", "remove an entry"]),
    "null cells with a number": ({"null_cells": 2}, ["null_cells:", "2", "true or false"]),
    "exclusive is something else": (
        {f"{S}.exclusive": {"mechanism": "mps"}},
        [f"{S}.exclusive:", "not exclusive", "restore it"],
    ),
    "strategy with a slash": (
        {f"{S}.a/b": {"mechanism": "mps"}},
        [f"{S}:", "'a/b'", "part of a path", "lower-case"],
    ),
    "strategy with a capital": (
        {f"{S}.Mine": {"mechanism": "mps"}},
        [f"{S}:", "'Mine'", "lower-case letters"],
    ),
    "strategy with a digit first": (
        {f"{S}.2mps": {"mechanism": "mps"}},
        [f"{S}:", "'2mps'", "a letter first"],
    ),
    "strategy with a long name": ({f"{S}.{'a' * 64}": {"mechanism": "mps"}}, [f"{S}:", "at most 63"]),
    "strategy with a line end": (
        {f"{S}.mps\n": {"mechanism": "mps"}},
        [f"{S}:", "'mps\\n'", "part of a path"],
    ),
    "device": ({f"{S}.device": {"mechanism": "mps"}}, [f"{S}.device:", "reserved", "device.json", "another"]),
    "none": ({f"{S}.none": {"mechanism": "mps"}}, [f"{S}.none:", "reserved", "baseline: none", "another"]),
    # the workload catalogue
    "unknown workload": ({"workloads": "matmult"}, ["workloads:", "'matmult'", "did you mean 'matmul'?"]),
    "mix": ({"workloads": "matmul+memcopy"}, ["workloads:", "'matmul+memcopy'", "not in the catalogue"]),
    "mix as a name": ({f"{W}.a+b": {"module": "matmul"}}, [f"{W}:", "'a+b'", "+ is kept for mixes"]),
    "workload twice": ({"workloads": "matmul,matmul"}, ["workloads:", "'matmul'", "listed twice"]),
    "no model": (
        SIMULATED | {"workloads": "memcopy"},
        ["workloads:", "'memcopy'", "add", f"{W}.memcopy.simulated"],
    ),
    "no module": (
        {f"{W}.matmul.module": None},
        ["workloads:", "'matmul'", "'cpu'", f"add {W}.matmul.module"],
    ),
    "no framework on the stand-in": (
        {"workloads": "yolos", "window_seconds": 10},
        ["workloads:", "'yolos'", "'cpu'", "needs torch and transformers, which", "(matmul, ", "set node: nvidia"],
    ),
    "a CUDA graph on the stand-in": (
        {"workloads": "matmul-256-graph"},
        ["workloads:", "'matmul-256-graph'", "'cpu'", "graph", "use one", "matmul-256, ", "set node: nvidia"],
    ),
    "half precision on the stand-in": (
        {"workloads": "matmul-16384", "window_seconds": 10},
        ["workloads:", "'matmul-16384'", "'cpu'", "float32 or float64, not float16", "set node: nvidia"],
    ),
    "module without file": (
        {f"{W}.matmul.module": "matmull"},
        [f"{W}.matmul.module:", "'matmull'", "no file", "did you mean 'matmul'?", "memcopy"],
    ),
    "module as a path": ({f"{W}.matmul.module": "../x"}, [f"{W}.matmul.module:", "'../x'", "Python module"]),
    "kind": ({f"{W}.matmul.kind": "jop"}, [f"{W}.matmul.kind:", "'jop'", "did you mean 'job'?", "loop"]),
    "closed with a rate": (
        {f"{W}.matmul.load": {"rate_hz": 5}},
        [f"{W}.matmul.load.rate_hz:", "5", "no effect on a closed load", "remove it"],
    ),
    "open without rate": (
        {f"{W}.matmul.load": {"arrival": "poisson"}},
        [f"{W}.matmul.load:", "poisson", "none is given", "give exactly one"],
    ),
    "open with two rates": (
        {f"{W}.matmul.load": {"arrival": "constant", "rate_hz": 5, "rate_of_capacity": 0.5}},
        [f"{W}.matmul.load:", "constant", "both are given", "give exactly one"],
    ),
    "rate of nothing": (
        {f"{W}.matmul.load": {"arrival": "poisson", "rate_hz": 0}},
        [f"{W}.matmul.load.rate_hz:", "0", "not above 0"],
    ),
    "arrival": (
        {f"{W}.matmul.load": {"arrival": "open"}},
        ["arrival:", "'open'", "closed, constant, poisson"],
    ),
    "model of nothing": (
        {f"{W}.matmul.simulated": {}},
        [f"{W}.matmul.simulated:", "0 seconds", "serial_seconds"],
    ),
    "negative work": (
        {f"{W}.matmul.simulated.serial_seconds": -1},
        [f"{W}.matmul.simulated.serial_seconds:", "-1", "below 0"],
    ),
    "list as a param": (
        {f"{W}.matmul.params": {"size": [1]}},
        [f"{W}.matmul.params.size:", "[1]", "true or false"],
    ),
    "param with a capital": (
        {f"{W}.matmul.params": {"Size": 1}},
        [f"{W}.matmul.params:", "'Size'", "lower-case"],
    ),
    **NEIGHBOURS,
    **CLUSTER,
    # what is no plain data
    "number as a key": ({f"{W}.matmul.params": {1: 2}}, [f"{W}.matmul.params:", "key 1", "in quotes"]),
    "date": ({"results": datetime.date(2026, 1, 2)}, ["results:", "date", "in quotes"]),
    "undecodable": ({"results": "a\udcff"}, ["results:", "in quotes"]),
    "contains itself": ({"strategies": DEEP}, ["strategies:", "nested too deeply", "anchor"]),
}


# What is typed after --config, and what the config holds then.
COMMAND_LINES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "list": (["strategies=[mps,mig]"], {"strategies": ["mps", "mig"]}),
    "list with a space": (["strategies=[mps, mig]"], {"strategies": ["mps", "mig"]}),
    "list with quotes": (['strategies=["mps","mig"]'], {"strategies": ["mps", "mig"]}),
    "list of one": (["strategies=[mps]"], {"strategies": ["mps"]}),
    "bare word": (["strategies=mps"], {"strategies": ["mps"]}),
    "bare words": (["strategies=mps,mig"], {"strategies": ["mps", "mig"]}),
    "numbers": (["replicas=[1,3]"], {"replicas": [1, 3]}),
    "number": (["replicas=1"], {"replicas": [1]}),
    "bare numbers": (["replicas=1, 3"], {"replicas": [1, 3]}),
    "number with exponent": (["window_seconds=1e3"], {"window_seconds": 1000}),
    "fraction": (["window_seconds=2.5"], {"window_seconds": 2.5}),
    "workload": (["workloads=matmul", "window_seconds=5"], {"workloads": ["matmul"], "window_seconds": 5}),
    "last one counts": (["seed=1", "seed=2"], {"seed": 2}),
    "null": (["from=null"], {"from": None}),
    "nothing": (["from="], {"from": None}),
    "folder that is a number": (["results=2026"], {"results": "2026"}),
    "no baseline": (["baseline=none"], {"baseline": "none"}),
    "cores": (["cpu={cores: [0, 1]}"], {"cpu": {"cores": [0, 1]}}),
    "core": (["cpu={cores: 0}"], {"cpu": {"cores": [0]}}),
    "nested numbers": (
        ["warmup={max_seconds: 1.5, min_iterations: 5}"],
        {"warmup": {"min_iterations": 5, "max_seconds": 1.5, "tolerance_percent": 5}},
    ),
}
