"""User programs in the config: refusals, and the specs of their cells."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.utils import update_config
from unit.studies import W, base_config, config_with, refusal_line, study_with

from sharebench.measure.nodes.programs import fill_in
from sharebench.measure.run.plan import remarks
from sharebench.model import capabilities
from sharebench.model.capabilities import resolve_node_kind
from sharebench.model.config.load import ConfigError, load
from sharebench.study.cells import Cell
from sharebench.study.public import public_config
from sharebench.study.study import Study
from tenant.request_bodies import body_factory

COMMAND = {"kind": "command", "command": ["run", "{port}"], "metrics": {"histogram": "h"}}
HTTP = {"kind": "http", "command": ["serve", "{port}"]}


def length(given: Any) -> dict[str, Any]:
    """A server whose prompts have this length."""
    return HTTP | {"request": {"body": "{prompt}", "tokens": {"prompt": given}}}


# Additions to the entry, and parts of the error line.
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no command": (COMMAND | {"command": None}, ["needs a command;", "as a list"]),
    "no server": (HTTP | {"command": None}, ["needs a command or a url"]),
    "a shell's line": (COMMAND | {"command": ["python run.py"]}, [".command:", "'python run.py'", "no shell", "list"]),
    "a typo in a placeholder": (
        COMMAND | {"command": ["run", "{prot}"]},
        [".command:", "'{prot}'", "did you mean '{port}'?", "{here}"],
    ),
    "a script that is not there": (
        COMMAND | {"command": ["python", "{here}/no/such.py"]},
        [".command:", "'{here}/no/such.py'", "not there", "snakemake runs in"],
    ),
    "a script of that folder": (COMMAND | {"command": ["python", "README.md"]}, ["write '{here}/README.md'"]),
    "two ports": (COMMAND | {"port": 8000}, [".port:", "8000", "'{port}'", "remove one"]),
    "no metric": (COMMAND | {"metrics": {}}, [".metrics:", "histogram or of a summary", "none is given"]),
    "two metrics": (COMMAND | {"metrics": {"histogram": "h", "summary": "s"}}, [".metrics:", "both are given"]),
    "a load of its own": (
        COMMAND | {"load": {"arrival": "poisson", "rate_hz": 3}},
        [".load:", "poisson", "no effect on kind: command"],
    ),
    "a request of a command": (COMMAND | {"request": {"path": "/x"}}, [".request:", "kind: command", "kind: http"]),
    "a command of a loop": ({"module": "matmul", "command": ["x"]}, [".command:", "kind: loop", "set kind: command"]),
    "metrics of a server": (HTTP | {"metrics": {"histogram": "h"}}, [".metrics:", "kind: http", "set kind: command"]),
    "both servers": (HTTP | {"url": "http://a:1"}, ["a command and a url", "keep the one"]),
    "a url with a path": (
        {"kind": "http", "url": "http://a:1/v1"},
        [".url:", "'http://a:1/v1'", "http://host:port", "request.path"],
    ),
    "two bodies": (HTTP | {"request": {"body": "a", "body_file": "README.md"}}, [".request:", "keep one"]),
    "a body that is not there": (
        HTTP | {"request": {"body_file": "no.json"}},
        ["body_file:", "'no.json'", "not a file"],
    ),
    "a secret in a header": (
        HTTP | {"request": {"headers": {"authorization": "Bearer sk-1"}}},
        [".request.headers.authorization:", "every record and archive", "export it", "'Bearer {env:NAME}'"],
    ),
    "a secret in a query": (
        HTTP | {"request": {"path": "/v1?n=3&key=sk-1"}},
        [".request.path: the value of 'key':", "write key={env:NAME}"],
    ),
    "a secret in a header of any name": (
        HTTP | {"request": {"headers": {"X-Auth-Token": "sk-1"}}},
        [".request.headers.X-Auth-Token:", "may be a secret", "'{env:NAME}'"],
    ),
    "a secret signature": (
        HTTP | {"request": {"path": "/v1?X-Amz-Signature=sk-1"}},
        [".request.path: the value of 'X-Amz-Signature':"],
    ),
    "a secret in a body": (
        HTTP | {"request": {"body": '{"n": "3", "api_key": "sk-1"}'}},
        [".request.body: the value of 'api_key':", "a header", "body_file"],
    ),
    "a secret in an option": (
        HTTP | {"command": ["serve", "--quiet", "--api-key", "sk-1"]},
        [".command: the value of 'api-key':", "export it", "read a file"],
    ),
    "a secret in a variable": (
        COMMAND | {"command": ["env", "HF_TOKEN=sk-1", "run"]},
        [".command: the value of 'HF_TOKEN':"],
    ),
    "a secret in a shell's command": (
        COMMAND | {"command": ["sh", "-c", "serve --hf-token=sk-1"]},
        [".command: the value of 'hf-token':"],
    ),
    "a secret of a shell": (COMMAND | {"command": ["sh", "-c", "API_KEY=sk-1 serve"]}, [".command:", "'API_KEY':"]),
    "a quoted secret": (COMMAND | {"command": ["sh", "-c", "cd x && API_KEY='sk-1' serve"]}, ["'API_KEY':"]),
    "a secret of a container": (COMMAND | {"command": ["docker", "run", "-e", "HF_TOKEN=sk-1"]}, ["'HF_TOKEN':"]),
    "a secret in a form": (HTTP | {"request": {"body": "n=3&api_key=sk-1"}}, [".request.body:", "'api_key':"]),
    "a secret in a url": (
        {"kind": "http", "url": "http://me:sk-1@a:1"},
        [".url:", "a URL with a name or password", "http://host:port"],
    ),
    "a secret alone in a url": ({"kind": "http", "url": "http://sk-1@a:1"}, [".url:", "a URL with a name or password"]),
    "a port that is none": ({"kind": "http", "url": "http://a:99999"}, [".url:", "'http://a:99999'"]),
    "a secret when asked if it is ready": (HTTP | {"ready": {"path": "/h?token=sk-1"}}, [".ready.path:", "'token'"]),
    "no variable": (
        HTTP | {"request": {"headers": {"A": "{env:my-key}"}}},
        [".request:", "begins no variable's name", "write {env:NAME}"],
    ),
    "lengths for nothing": (
        HTTP | {"request": {"body": "{}", "tokens": {"prompt": 5}}},
        [".request.tokens:", "no effect", "{prompt_ids}", "remove it"],
    ),
    "nothing for a placeholder": (HTTP | {"request": {"body": "{prompt}"}}, [".tokens:", "'{prompt}'", "prompt: 256"]),
    "no length for a placeholder": (
        HTTP | {"request": {"body": "{prompt} {output_tokens}", "tokens": {"prompt": 5}}},
        [".tokens.output:", "'{output_tokens}'", "give a number"],
    ),
    "a length for no placeholder": (
        HTTP | {"request": {"body": "{promt} {output_tokens}", "tokens": {"prompt": 5, "output": 5}}},
        [".tokens.prompt:", "no effect without '{prompt}' or '{prompt_ids}'"],
    ),
    "ids as a text": (
        HTTP | {"request": {"body": '{"prompt": "{prompt_ids}"}', "tokens": {"prompt": 5}}},
        [".request.body:", "'{prompt_ids}' between quotes", "remove the quotes"],
    ),
    "half a range": (length({"min": 5}), [".tokens.prompt:", "is not a length", "{min, max}"]),
    "a range upside down": (length({"min": 9, "max": 5}), [".tokens.prompt:", "min 9 is above max 5"]),
    "requests in flight of a command": (
        COMMAND | {"load": {"concurrency": 4}},
        [".load.concurrency:", "4", "kind: http"],
    ),
    "two sweeps": (
        HTTP | {"load": {"arrival": "poisson", "rate_hz": [1, 2], "concurrency": [1, 2]}},
        [".load:", "concurrency and rate_hz", "keep one number"],
    ),
    "a server's count": (HTTP | {"ready": {"count": 3}}, [".ready.count:", "no effect on kind: http", "ready.path"]),
    "a sweep of a closed load's rate": (HTTP | {"load": {"rate_hz": [1, 2]}}, [".mine.load.rate_hz:", "closed"]),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_each_mistake_is_one_line_with_key_value_and_remedy(case: tuple[dict[str, Any], list[str]]) -> None:
    entry, wanted = case
    line = refusal_line({f"{W}.mine": entry, "workloads": ["mine"]})
    assert line.startswith(f"config: {W}.mine") and "\n" not in line
    for piece in wanted:
        assert piece in line


def test_variables_of_a_shell_are_not_placeholders() -> None:
    words = ["sh", "-c", "for index in 0 1; do echo ${index} ${shard}; done; exec run --port ${port:-80} ${port}"]
    assert spec_of(COMMAND | {"command": words, "port": 8000})["command"] == words
    assert fill_in(f"{words[2]} {{index}} {{other}}", {"index": 3, "port": "{index}"}) == f"{words[2]} 3 {{other}}"


@pytest.mark.parametrize("case", [each for name, each in REFUSED.items() if "secret" in name])
def test_a_refused_secret_is_not_repeated(case: tuple[dict[str, Any], list[str]]) -> None:
    assert "sk-1" not in refusal_line({f"{W}.mine": case[0], "workloads": ["mine"]})


NOT_SECRET: list[dict[str, Any]] = [
    HTTP | {"request": {"headers": {"Content-Type": "application/json", "X-Key": "a{env:KEY}"}}},
    HTTP | {"request": {"path": "/v1?keyword=a&max_tokens=3&monkeys=7&key={env:KEY}"}},
    HTTP | {"request": {"body": '{"eos_token": "</s>", "stop": "key", "max_tokens": 5, "tokenizer": "a"}'}},
    HTTP | {"command": ["serve", "--api-key", "{index}", "--key", "/etc/key.pem", "--tokenizer", "auto"]},
    HTTP | {"command": ["sh", "-c", "serve --api-key $KEY --token=${TOKEN} --auth none --max-num-batched-tokens 5"]},
    HTTP | {"command": ["sh", "-c", "API_KEY=\"$KEY\" serve --token '' --name \"it's\" -k 'x"]},
    HTTP | {"request": {"method": "POST", "body": "key=1 is the key; secret=2&token="}},
    {"kind": "http", "url": "http://[::1]:8000"},
    {"kind": "http", "url": "http://a.b/"},
]


@pytest.mark.parametrize("entry", NOT_SECRET)
def test_what_only_looks_like_a_secret_is_taken(entry: dict[str, Any]) -> None:
    load(config_with({f"{W}.mine": entry, "workloads": ["mine"]}))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"prometheus": {"url": "https://sk-1@p:9090"}}, "prometheus.url"),
        (
            {
                "kubernetes": {
                    "pod": {"containers": [{"name": "tenant", "env": [{"name": "HF_TOKEN", "value": "sk-1"}]}]}
                }
            },
            "kubernetes.pod",
        ),
    ],
)
def test_secrets_outside_of_workloads_are_refused_and_not_repeated(changes: dict[str, Any], key: str) -> None:
    line = refusal_line(changes)
    assert line.startswith(f"config: {key}: ") and "sk-1" not in line


def test_the_config_of_a_data_set_is_read_whatever_it_reveals(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    entry = HTTP | {"request": {"headers": {"X-Model": "small"}}}
    assert load(config_with({f"{W}.mine": entry, "workloads": ["mine"], "from": str(tmp_path)}))


def test_a_record_has_the_name_of_a_variable_and_not_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-1")
    headers = {"Authorization": "Bearer {env:MY_KEY}", "Accept": "text/plain"}
    found = spec_of(HTTP | {"request": {"headers": headers, "path": "/v1?key={env:MY_KEY}"}})
    assert found["request"]["headers"] == headers
    assert "sk-1" not in json.dumps(found)


CHAT = {"method": "POST", "path": "/v1/chat/completions"}
BATCH = '{"custom_id": "r0", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": []}}'
TO_WRITE = '{"messages": [{"role": "user", "content": "hi"}], "stream": true}'


def load_lines(content: str | bytes, folder: Path, **request: Any) -> None:
    """Load a study whose server gets these lines."""
    (folder / "mine.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    entry = HTTP | {"stream": True, "request": CHAT | {"body_lines": "mine.jsonl"} | request}
    load(config_with({f"{W}.mine": entry, "workloads": ["mine"]}))


@pytest.mark.parametrize(
    ("content", "request_"),
    [
        (f"\ufeff{TO_WRITE}\r\n\r\n{TO_WRITE}", {}),
        (f"{BATCH}\n{BATCH}", {"path": "/v1/chat/completions?v=1"}),
        ('{"prompt": "hi"}\n', {"path": "/v1/completions"}),
        ('{"prompt": "hi"}\n', {"path": "/infer"}),
        ("x=1&y=2\n", {"path": "/infer"}),
        (b"\xff\xfe\n\x80", {"path": "/infer"}),
    ],
    ids=["chat", "batch", "completions", "a server of its own", "a form", "bytes"],
)
def test_lines_in_the_form_of_their_server_are_taken(
    content: str | bytes, request_: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    load_lines(content, tmp_path, **request_)


@pytest.mark.parametrize(
    ("content", "request_", "pieces"),
    [
        ('{"prompt": "hi"}', {}, ["line 1 of 'mine.jsonl' has no 'messages'", "/v1/chat/completions needs", TO_WRITE]),
        ('{"question_id": 80, "turns": ["hi", "b"]}', {}, ["has no 'messages'", TO_WRITE]),
        ('{"conversations": [{"from": "human", "value": "hi"}]}', {}, ["has no 'messages'", TO_WRITE]),
        ('[\n {"id": "a"}\n]', {}, ["line 1", "is not JSON, but '['", "one body per line"]),
        ('"hi"', {}, ["has no 'messages'", TO_WRITE]),
        (f'{TO_WRITE}\n\n{{"messages": [}}', {}, ["line 3", "is not JSON", "'{\"messages\": [}'"]),
        ('{"x": 1}\n{"x": 1', {"path": "/infer"}, ["line 2", "is not JSON"]),
        (TO_WRITE, {"path": "/v1/completions"}, ["no 'prompt' or 'prompt_embeds'", '{"prompt": "hi", "stream": true}']),
        (BATCH, {"path": "/"}, ["is a request of '/v1/chat/completions'; set request.path: /v1/chat/completions"]),
        (BATCH.replace("messages", "m"), {}, ["line 1", "has no 'messages'"]),
        (TO_WRITE.encode("utf-16"), {}, ["line 1", "is not UTF-8; save the file as UTF-8"]),
        ("[" * 100_000, {}, ["is not JSON"]),
        ("\n \n", {}, ["'mine.jsonl' has no line"]),
    ],
)
def test_lines_that_their_server_refuses_are_one_line_with_the_line_to_write(
    content: str | bytes, request_: dict[str, Any], pieces: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        load_lines(content, tmp_path, **request_)
    for piece in (f"config: {W}.mine.request.body_lines: ", *pieces):
        assert piece in str(refused.value)


def spec_of(entry: dict[str, Any], part: str = "workload") -> dict[str, Any]:
    """A part of the spec of a cell with two such tenants."""
    planned = study_with({f"{W}.mine": entry, "workloads": ["mine"]})
    found: dict[str, Any] = planned.spec(Cell("mps", "mine", 2, 1)).spec()[part]
    return found


def test_a_cell_depends_on_the_keys_of_its_program() -> None:
    assert spec_of(COMMAND)["command"] == ["run", "{port}"]
    assert spec_of(COMMAND)["metrics"]["histogram"] == "h"
    assert spec_of(COMMAND) != spec_of(COMMAND | {"metrics": {"histogram": "h", "unit": "milliseconds"}})
    assert spec_of(HTTP) != spec_of(HTTP | {"request": {"path": "/infer"}})


def test_a_cell_depends_on_keys_only_where_they_are_set() -> None:
    plain = spec_of(HTTP)
    assert plain == HTTP | {"name": "mine"}
    assert spec_of(HTTP | {"load": {"concurrency": 4}})["load"] == {"concurrency": 4}
    assert spec_of(HTTP | {"start": "staggered"}) == plain | {"start": "staggered"}
    assert spec_of(HTTP | {"failed_percent": 5}) == plain
    assert spec_of(HTTP | {"failed_percent": 20}) == plain | {"failed_percent": 20}
    request = spec_of(HTTP | {"request": {"body": "{prompt}", "tokens": {"prompt": 5}}})["request"]
    assert request["tokens"]["prompt"] == {"mean": 5}


@pytest.mark.parametrize(
    ("request_keys", "noted"),
    [
        ({"body": '{"prompt": "Hi", "stream" : true}'}, ""),
        ({"body": '{"prompt": "Hi"}'}, "request.body"),
        ({"body": '{"prompt": "Hi", "stream": false}'}, "request.body"),
        ({"body": '{"prompt": "Hi"}', "path": "/api/generate"}, ""),
        ({"body": "prompt=Hi"}, ""),
        ({"body_file": "bodies"}, "request.body_file"),
        ({"body_lines": "bodies"}, "request.body_lines"),
        ({}, ""),
    ],
)
def test_a_stream_that_is_not_asked_for_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_keys: dict[str, Any], noted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    both = ['{"prompt": "a", "stream": true}', '{"prompt": "b"}']
    (tmp_path / "bodies").write_text("\n".join(both[1:] if "body_file" in request_keys else both))
    entry = HTTP | {"request": {"method": "POST", **request_keys}}
    for is_stream in (True, False):
        planned = study_with({f"{W}.mine": entry | {"stream": is_stream}, "workloads": ["mine"]})
        text = " ".join(" ".join(remarks(planned)).split())
        assert (f'note: {W}.mine.{noted}: has no "stream": true' in text) == bool(noted and is_stream)
        assert bool(text) == bool(noted and is_stream)


def test_a_loop_does_not_depend_on_keys_of_programs() -> None:
    assert spec_of({"module": "matmul"}) == {"name": "mine", "module": "matmul"}


def test_a_cell_depends_on_the_files_of_its_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.py").write_text("1")
    (tmp_path / "body.json").write_text("{}")
    served = {"kind": "http", "command": ["python", "{here}/run.py", "/usr/bin/env"]}
    entry = served | {"request": {"body_file": "body.json"}}
    before = spec_of(entry, "files")
    assert before.keys() == {"run.py", "body.json"}
    assert spec_of(served | {"request": {"body_lines": "body.json"}}, "files") == before
    assert spec_of(entry, "files") == before
    (tmp_path / "run.py").write_text("2")
    assert spec_of(entry, "files")["run.py"] != before["run.py"]
    assert str(tmp_path) not in json.dumps([before, spec_of(entry)])


def test_the_code_of_a_program_is_not_that_of_a_loop() -> None:
    entries = {f"{W}.mine": COMMAND, f"{W}.server": HTTP, f"{W}.both": {"tenants": ["mine", "server"]}}
    planned = study_with(entries)
    digests = [planned.code(name) for name in ("matmul", "mine", "server", "both")]
    assert len(set(digests)) == 3, "a mix of both kinds has the code of the server"
    assert digests[2] == digests[3]


BLOCKS_OF_VLLM = r"^```yaml\n((?:(?!^```).)*vllm, serve.*?)^```"
PAGES = [Path(__file__).parents[3] / page for page in ("README.md", "docs/your-own-workload.md")]
TEXT = "\n".join(page.read_text() for page in PAGES)


@pytest.mark.parametrize("block", re.findall(BLOCKS_OF_VLLM, TEXT, flags=re.MULTILINE | re.DOTALL))
def test_vllm_blocks_of_the_pages_start_staggered_or_fix_their_memory(block: str) -> None:
    (server,) = yaml.safe_load(block)[W].values()
    assert server.get("start") == "staggered" or "--kv-cache-memory-bytes" in server["command"]


@pytest.mark.parametrize("block", re.findall(r"^```yaml\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL))
def test_yaml_blocks_of_the_pages_work(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    (tmp_path / "examples").symlink_to(Path(__file__).parents[3] / "examples")
    given = yaml.safe_load(block)
    if "kind" in given:
        given = {W: {"mine": given}, "workloads": ["mine"]}
    elif "command" in given:
        given = {W: {"mine": HTTP | given}, "workloads": ["mine"]}
    config = config_with({})
    update_config(config, given)
    loaded = load(config)
    entry = loaded[W][loaded["workloads"][0]]
    if entry.request.body is not None:
        json.loads(body_factory(entry.request.model_dump(), 0, 0)(0))


def test_the_examples_also_run_on_the_cpu_of_a_gpu_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", Path("/dev/null"))
    monkeypatch.chdir(Path(__file__).parents[3])
    config = copy.deepcopy(base_config())
    update_config(config, yaml.safe_load(Path("config/programs.yaml").read_text()))
    planned = Study(load(config))
    assert resolve_node_kind(planned.config["node"]) == planned.node_kind == "cpu"
    names = {each for cell in planned.cells for each in planned.workloads_of(cell)}
    assert names == set(planned.config["workloads"])


def test_a_manifest_does_not_reveal_the_paths_of_programs() -> None:
    words = ["/home/me/vllm/bin/vllm", "serve", "--model=/home/me/small", "{here}/x", "{port}"]
    config = load(config_with({f"{W}.mine": COMMAND | {"command": words}}))
    command = public_config(config)[W]["mine"]["command"]
    assert command == ["…/vllm", "serve", "--model=…/small", "{here}/x", "{port}"]
    assert public_config(config)[W]["matmul"]["command"] is None
