"""The example servers of language models: their answers, and the model folder for vLLM."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharebench.measure.nodes.host.programs.tenants import free_port

EXAMPLES = Path(__file__).parents[4] / "examples"
DEADLINE_SECONDS = 60


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
    subprocess.run([sys.executable, EXAMPLES / "make_model.py", "0.6b", tmp_path / "small"], check=True)
    config, tokenizer = (
        json.loads((tmp_path / "small" / name).read_text()) for name in ("config.json", "tokenizer.json")
    )
    vocabulary = tokenizer["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"]))
    assert all(vocabulary[each["content"]] == each["id"] for each in tokenizer["added_tokens"])
    assert config["num_attention_heads"] % config["num_key_value_heads"] == 0
