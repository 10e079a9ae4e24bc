"""The example servers of language models: their answers, and the model folder for vLLM."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sharebench.measure.nodes.host.programs.tenants import free_port
from tenant.client.answers import parse_answer

EXAMPLES = Path(__file__).parents[4] / "examples"
DEADLINE_SECONDS = 60
loader = SourceFileLoader("make_model", str(EXAMPLES / "make_model.py"))
make_model: Any = ModuleType(loader.name)
loader.exec_module(make_model)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The root of a chat server with these arguments."""
    port = free_port()
    command = [sys.executable, str(EXAMPLES / "chat_server.py"), str(port), *getattr(request, "param", ())]
    root = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{root}/health").close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield root
        process.kill()


def events(url: str, **asked: Any) -> list[tuple[float, dict[str, Any]]]:
    """The events of a stream, each with the seconds since the request."""
    begun, found = time.monotonic(), []
    with urllib.request.urlopen(url, json.dumps({"stream": True} | asked).encode()) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                found.append((time.monotonic() - begun, json.loads(line.removeprefix(b"data: "))))
        assert line.strip() == b"" or line.startswith(b"data: [DONE]")
    return found


def test_a_completion_of_ids_counts_its_tokens_in_every_event(server: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = [
        event for _, event in events(f"{server}/v1/completions", prompt=[5, 6, 7], max_tokens=3, stream_options=options)
    ]
    assert [event["usage"]["completion_tokens"] for event in found] == [1, 2, 3, 3]
    assert {event["usage"]["prompt_tokens"] for event in found} == {3}
    assert [choice["text"] for event in found for choice in event["choices"]] == ["word0 ", "word1 ", "word2 "]
    assert found[-1]["choices"] == [], "the usage of all comes alone, as OpenAI has it"


def test_a_chat_reports_usage_only_on_request(server: str) -> None:
    message = {"role": "user", "content": "two words"}
    found = [event for _, event in events(f"{server}/v1/chat/completions", messages=[message], max_tokens=2)]
    assert [event["choices"][0]["delta"]["content"] for event in found] == ["word0 ", "word1 "]
    assert [event["choices"][0]["finish_reason"] for event in found] == [None, "length"]
    assert not any("usage" in event for event in found)
    with urllib.request.urlopen(f"{server}/v1/chat/completions", b'{"max_tokens": 2}') as answer:
        assert json.load(answer)["choices"][0]["message"]["content"] == "word0 word1 "


def test_the_model_folder_has_a_word_for_every_token(tmp_path: Path) -> None:
    make_model.write_files("0.6b", tmp_path)
    config, tokenizer = (json.loads((tmp_path / name).read_text()) for name in ("config.json", "tokenizer.json"))
    vocabulary = tokenizer["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"]))
    assert all(vocabulary[each["content"]] == each["id"] for each in tokenizer["added_tokens"])
    assert config["num_attention_heads"] % config["num_key_value_heads"] == 0


def test_weights_have_the_scale_of_trained_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 2}
    monkeypatch.setitem(make_model.SHAPES, "tiny", sizes)
    make_model.make("tiny", tmp_path)
    content = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(content) - 8 - size

    def values(name: str) -> np.ndarray:
        begin, end = header[name]["data_offsets"]
        halves = np.frombuffer(content[8 + size + begin : 8 + size + end], np.uint16).astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(header[name]["shape"])

    hidden = np.random.default_rng(2).standard_normal(256)
    scores = values("model.embed_tokens.weight") @ hidden
    assert scores.std() == pytest.approx(make_model.SCORE_DEVIATION, rel=0.2)
    likeliest = np.exp(scores.max()) / np.exp(scores).sum()
    assert likeliest > 300 / make_model.VOCABULARY, "a uniform choice shows no wrong product"
    assert (values("model.layers.0.self_attn.q_proj.weight") @ hidden).std() == pytest.approx(1, rel=0.2)
    assert set(values("model.norm.weight")) == {1.0}
    changed = (tmp_path / "model.safetensors").stat().st_mtime_ns
    make_model.make("tiny", tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == changed, "another server finds it"


def test_a_chat_gives_log_probabilities_on_request(server: str) -> None:
    for path, asked in (("completions", {"logprobs": 1}), ("chat/completions", {"logprobs": True})):
        body = json.dumps({"max_tokens": 2, "prompt": [1]} | asked).encode()
        with urllib.request.urlopen(f"{server}/v1/{path}", body) as answer:
            found = parse_answer(200, answer.read())
        assert found == {"status": 200, "tokens": ["word0 ", "word1 "], "logprobs": [-0.1, -0.2]}
