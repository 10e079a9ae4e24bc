"""The fixed prompts that a server is asked: on the request's own API, one at a time, with no load meanwhile."""

import json
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, ClassVar

import pytest

from tenant.client.answers import fixed_request, parse_answer
from tenant.contract import SteadinessRule
from tenant.load import Load
from tenant.measure import Measurement
from tenant.record import Identity
from tenant.workloads.http_client import create

COMPLETION = (
    '{"model": "m", "prompt": {prompt_ids}, "max_tokens": {output_tokens}, "stream": true, "stream_options": {}}'
)
LENGTHS = {"prompt": {"mean": 5}, "output": {"mean": 3}, "shared_prefix": 0, "vocabulary": 100}


class Model(BaseHTTPRequestHandler):
    """A server of completions that notes each request for log-probabilities, and how many others are in flight then."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[dict[str, Any]]] = []
    others: ClassVar[list[int]] = []
    # By server: one of an earlier test may still answer requests of the load that went on.
    in_flight: ClassVar[Counter[object]] = Counter()
    lock = Lock()
    status = 200

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choice: dict[str, Any] = {"index": 0, "text": "a b"}
        with Model.lock:
            Model.in_flight[self.server] += 1
            if "logprobs" in request:
                Model.asked.append(request)
                Model.others.append(Model.in_flight[self.server] - 1)
                choice["logprobs"] = {"tokens": ["a", "b"], "token_logprobs": [-0.5, float("nan")]}
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(Model.status if "logprobs" in request else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with Model.lock:
            Model.in_flight[self.server] -= 1
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    Model.asked, Model.others, Model.status = [], [], 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "load", [Load(concurrency=3, asks=3), Load("poisson", 30.0, concurrency=8, asks=3)], ids=["closed", "open"]
)
@pytest.mark.parametrize("status", [200, 400])
def test_prompts_are_asked_before_the_load_and_after_the_window(url: str, load: Load, status: int) -> None:
    Model.status = status
    client = create({"url": url, "method": "POST", "path": "/v1", "body": COMPLETION, "tokens": LENGTHS}, "cpu")
    rule = SteadinessRule(min_iterations=2, max_seconds=0.2, tolerance_percent=50)
    measurement = Measurement(client, Identity(0, "m", 0, 0, 0), load, rule)
    assert len(Model.asked) == 4
    measurement.warm_up()
    now_ns = measurement._clock()
    measurement.set_window(now_ns + 500_000_000, now_ns + 700_000_000)
    while measurement._record is None:
        measurement.run_chunk()
    measurement.wait_outputs(0)
    measurement.run_chunk()
    answers = measurement.wait_outputs(0)["answers"]
    assert answers == [[{"status": status, "tokens": ["a", "b"], "logprobs": [-0.5, None]}] * 4] * 3
    assert Model.asked[:4] == Model.asked[4:8] == Model.asked[8:]
    assert len({str(request["prompt"]) for request in Model.asked}) == 4
    assert Model.others == [0] * 12
    count = measurement._record["count"]
    # The load goes on for neighbours that may still measure.
    measurement.run_chunk()
    assert count > 0 and measurement._recorder.totals().count > count


def test_nothing_is_asked_without_being_planned(url: str) -> None:
    client = create({"url": url, "method": "POST", "path": "/v1", "body": COMPLETION, "tokens": LENGTHS}, "cpu")
    client.loop(Load(), 0, Lock(), lambda: 0)
    assert (client.fixed_answers(), Model.asked) == ([], [])


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (
            {"prompt": [1], "max_tokens": 9, "stream": True, "stream_options": {"include_usage": True}, "seed": 5},
            {"prompt": [1], "max_tokens": 32, "stream": False, "seed": 5, "temperature": 0, "logprobs": 1},
        ),
        (
            {"messages": [], "max_completion_tokens": 9, "temperature": 1},
            {
                "messages": [],
                "max_completion_tokens": 32,
                "stream": False,
                "temperature": 0,
                "logprobs": True,
                "top_logprobs": 1,
            },
        ),
        ({"inputs": [1]}, None),
        ([1], None),
    ],
)
def test_a_request_asks_for_log_probabilities_on_its_own_api(given: Any, asked: Any) -> None:
    request = fixed_request(json.dumps(given).encode())
    assert (request and json.loads(request)) == asked


@pytest.mark.parametrize(
    ("logprobs", "tokens", "values"),
    [
        ({"content": [{"token": "a", "logprob": -1}, {"token": "b", "logprob": -2.00001}]}, ["a", "b"], [-1, -2.0]),
        ({"tokens": ["a"], "token_logprobs": [float("-inf")]}, ["a"], [None]),
        (None, [], []),
        ({"content": None}, [], []),
        ({"tokens": ["a", "b"], "token_logprobs": [-1]}, [], []),
    ],
)
def test_an_answer_has_each_tokens_log_probability(logprobs: Any, tokens: list[str], values: list[float]) -> None:
    content = json.dumps({"choices": [{"text": "ab", "logprobs": logprobs}]}).encode()
    assert parse_answer(200, content) == {"status": 200, "tokens": tokens, "logprobs": values}


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"choices": []}'])
def test_an_answer_of_another_form_has_none(content: bytes) -> None:
    assert parse_answer(500, content) == {"status": 500, "tokens": [], "logprobs": []}
