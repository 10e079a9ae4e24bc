"""Refused configs with parts of the error line, and command lines with the resulting config."""

import datetime
from pathlib import Path
from typing import Any

from unit.config_cases_catalogues import CATALOGUES
from unit.config_cases_cluster import CLUSTER, KUBERNETES
from unit.config_cases_neighbours import NEIGHBOURS
from unit.studies import S, W

ROOT = Path(__file__).parents[2]
DEEP: list[Any] = []
DEEP.append(DEEP)


# Changes of the config, and parts of the error line: key, value, remedy.
MALFORMED: dict[str, tuple[dict[str, Any], list[str]]] = {
    # unknown keys
    "typo": ({"window_second": 1}, ["'window_second'", "unknown key", "did you mean 'window_seconds'?"]),
    "nothing like it": ({"qqq": 1}, ["'qqq'", "unknown key", "Known: results, node, strategies"]),
    "no space after the colon": ({"warmup": {"max_seconds:3": ""}}, ["warmup:", "space after the colon"]),
    # strategies
    "unknown strategy": ({"strategies": ["mpss"]}, ["strategies:", "'mpss'", "mean 'mps'?", "Known: exclusive"]),
    "no strategies": ({"strategies": []}, ["strategies:", "[]", "empty", "name at least one"]),
    "strategy twice": ({"strategies": ["mps", "mig", "mps"]}, ["strategies:", "'mps'", "listed twice", "remove"]),
    # strategies that are impossible on this kind of node
    "limits on the stand-in": (
        {"strategies": ["mps-limited"]},
        ["strategies:", "'mps-limited'", "'cpu'", "thread_percent and memory_percent", "can: nvidia, simulated"],
    ),
    "streams on the stand-in": (
        {"strategies": ["streams"]},
        ["'streams'", "'cpu'", "no streams", "can: nvidia, simulated"],
    ),
    "green contexts without a share": (
        {f"{S}.own": {"mechanism": "green-contexts"}},
        ["own.thread_percent:", "null is not enough for green-contexts", "such as 100/N"],
    ),
    "memory of a green context": (
        {f"{S}.green-contexts.memory_percent": "100/N"},
        ["memory_percent:", "'100/N'", "has no effect without mps"],
    ),
    "nvidia": ({"node": "nvidia"}, ["node:", "'nvidia'", "no NVIDIA GPU", "use cpu for the stand-in, or simulated"]),
    "another share in a cluster": (
        KUBERNETES | {"strategies": ["mps-limited-200"]},
        ["'mps-limited-200'", "'kubernetes'", "caps every tenant at 100/N, no other thread_percent"],
    ),
    "limits of each tenant by another scheduler": (
        {**KUBERNETES, "strategies": ["hami"], f"{S}.hami.thread_percent": [60, 20, 20]},
        ["'hami'", "'kubernetes'", "limits all tenants alike and by shares", "no list of limits"],
    ),
    # replicas, repeats, seed
    "no tenant": ({"replicas": [0]}, ["replicas:", "0", "below 1", "use 1 or more"]),
    "tenants as text": ({"replicas": ["1", "two"]}, ["replicas:", "'two'", "not a whole number"]),
    "replicas twice": ({"replicas": ["2", 2.0]}, ["replicas:", "2", "listed twice"]),
    "too many tenants to count": ({"replicas": [10**30]}, ["replicas:", "2^53", "smaller"]),
    # the question
    "SLO with unit": ({"slo.latency_ms": "50ms"}, ["slo.latency_ms:", "'50ms'", "is not a number or null"]),
    "withdrawn key with a date": ({"slo_ms": datetime.date(2020, 1, 1)}, ["slo_ms:", "a date", "write slo:"]),
    "a share beyond all numbers": (
        {f"{S}.mine": {"mechanism": "mps", "thread_percent": 1.0e300}},
        ["thread_percent:", "1e+300", "not a number up to 2^53"],
    ),
    "a share that is not a number": (
        {f"{S}.mine": {"mechanism": "mps", "thread_percent": float("nan")}},
        ["thread_percent:", "nan", "not a number up to 2^53"],
    ),
    "SLO as it was": ({"slo_ms": 50}, ["slo_ms:", "50", "write slo: {latency_ms: 50}"]),
    "key of a rule of old": ({"datasets": ["a", "b"]}, ["datasets:", "withdrawn", "sharebench compare BEFORE AFTER"]),
    "section of a rule of old": ({"survey": {"hours": 3}}, ["survey:", "withdrawn", "`sharebench survey --help`"]),
    "parts of a study": ({"parts": ["a", "b"]}, ["parts:", "withdrawn", "`sharebench join`"]),
    "a key of old": ({"kubernetes.drain": True}, ["kubernetes: drain: true was withdrawn; remove it"]),
    # window, order, baseline, results, from
    "no window": ({"window_seconds": 0}, ["window_seconds:", "0", "not above 0"]),
    "endless window": ({"window_seconds": float("inf")}, ["window_seconds:", "inf is not a number", "smaller"]),
    "no number at all": ({"window_seconds": float("nan")}, ["window_seconds:", "nan is not a number up to 2^53"]),
    "window too short": ({"window_seconds": 0.5}, ["window_seconds:", "0.5", "'matmul'", "use 1 or more"]),
    "baseline switched off": ({"baseline": False}, ["baseline:", "false", "not text", "cells of exclusive"]),
    "results in home": ({"results": "~/r"}, ["results:", "'~/r'", "no leading ~"]),
    "results among the sources": ({"results": "."}, ["results:", "'.'", "holds more than results", "results/mine"]),
    "results among documents": ({"results": "docs/mine"}, ["results:", "'docs/mine'", "holds more than results"]),
    "results of 300 letters": (
        {"results": f"results/{'a' * 300}"},
        ["results:", "longer than 200 bytes"],
    ),
    "from of 300 letters": ({"from": "a" * 300}, ["from:", "longer than 200 bytes"]),
    "results above": ({"results": "scripts/.."}, ["results:", "'scripts/..'", "holds more than results"]),
    "results in a file": ({"results": f"{__file__}/r"}, ["results:", "is a file, or in one", "results/mine"]),
    "a list of which one is nowhere": ({"from": [str(Path(__file__).parent), "no"]}, ["from: 'no' is not an existing"]),
    "from nowhere": ({"from": "no/such/folder"}, ["from:", "'no/such/folder'", "not an existing folder"]),
    "from a file": ({"from": __file__}, ["from:", "not a zip", "damaged", "get the archive again"]),
    # sections
    "text for a section": ({"warmup": "fast"}, ["warmup:", "'fast'", "not a mapping", "{key: value}"]),
    "a number of cores for their names": (
        {"cpu.cores": 2},
        ["cpu.cores:", "2 is the number of no core", "0, 1, or auto"],
    ),
    # contrasts, parts, data sets, and exclusions
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
    "an exclusion of nothing": ({"exclude": ["mps/matmul/n3"]}, ["exclude:", "'mps/matmul/n3'", "one is ", "/n"]),
    "an exclusion of everything": ({"exclude": ["*/*"]}, ["exclude:", "leaves no cell", "remove an entry"]),
    "a switch with a number": ({"null_cells": 2}, ["null_cells:", "2", "true or false"]),
    **CATALOGUES,
    **NEIGHBOURS,
    **CLUSTER,
    # values that are not plain data
    "number as a key": ({f"{W}.matmul.params": {1: 2}}, [f"{W}.matmul.params:", "key 1", "in quotes"]),
    "date": ({"results": datetime.date(2026, 1, 2)}, ["results:", "date", "in quotes"]),
    "undecodable": ({"results": "a\udcff"}, ["results:", "in quotes"]),
    "contains itself": ({"strategies": DEEP}, ["strategies:", "nested too deeply", "anchor"]),
}


# Arguments of --config, and the resulting config.
COMMAND_LINES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "list": (["strategies=[mps,mig]"], {"strategies": ["mps", "mig"]}),
    "bare words": (["strategies=mps,mig"], {"strategies": ["mps", "mig"]}),
    "number": (["replicas=1"], {"replicas": [1]}),
    "number with exponent": (["window_seconds=1e3"], {"window_seconds": 1000}),
    "workload": (["workloads=matmul", "window_seconds=5"], {"workloads": ["matmul"], "window_seconds": 5}),
    "null": (["from=null"], {"from": []}),
    "nothing": (["from="], {"from": []}),
    "folder that is a number": (["results=2026"], {"results": "2026"}),
    "no baseline": (["baseline=none"], {"baseline": "none"}),
    "cores": (["cpu={cores: [0, 1]}"], {"cpu": {"cores": [0, 1], "devices": 1}}),
    "a GPU": (["nvidia={gpu: 1}"], {"nvidia": {"gpu": "1", "python": "auto", "hami_core": None, "may_change": []}}),
    "GPUs": (
        ["nvidia={gpu: [0, 3]}"],
        {"nvidia": {"gpu": ["0", "3"], "python": "auto", "hami_core": None, "may_change": []}},
    ),
    "all GPUs": (
        ["nvidia={gpu: all}"],
        {"nvidia": {"gpu": "all", "python": "auto", "hami_core": None, "may_change": []}},
    ),
    "core": (["cpu={cores: 0}"], {"cpu": {"cores": [0], "devices": 1}}),
    "nested numbers": (
        ["warmup={max_seconds: 1.5, min_iterations: 5}"],
        {"warmup": {"min_iterations": 5, "max_seconds": 1.5, "tolerance_percent": 5}},
    ),
}
