"""A URL at which something else than Prometheus answers."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from unit.studies import study_with

from sharebench import survey
from sharebench.measure.cell.prometheus.checked import CheckedServer
from sharebench.measure.cell.prometheus.server import PrometheusUnavailable
from sharebench.measure.run import lifecycle
from sharebench.measure.run.ownership import OwnershipError

OTHERS = {
    b'{"status":"error","error":"boom"}': """it says '{"status":"error","error":"boom"}' (text/html)""",
    b"[]": "it says '[]' (text/html)",
    b'{"status":"success","data":null}': "it says ",
    b'{"data":{"result":[{"metric":{},"value":[1,"many"]}]}}': "it says ",
    b'{"data":{"result":[{"metric":{},"values":[[1]]}]}}': "it says ",
    b'{"data":{"result":[{"metric":[],"value":[1,"2"]}]}}': "it says ",
    b"<html>\n<title>Grafana": "it says '<html> <title>Grafana' (text/html)",
    b"": "its answer is empty",
}
BEGIN = "what answers is not Prometheus' API: "


class Handler(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_survey_says_what_answers_in_place_of_prometheus(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for body, said in OTHERS.items():
        monkeypatch.setattr(Handler, "body", body)
        with pytest.raises(PrometheusUnavailable) as refused:
            survey.observe_usage(url, {}, None)
        line = str(refused.value)
        assert (
            line.startswith(BEGIN + said) and line.endswith(f"Prometheus itself; --url is {url}") and "\n" not in line
        )


def test_a_run_does_not_start_where_something_else_answers(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "body", b"[]")
    watched = study_with({"node": "cpu", "prometheus": {"url": url, "folder": str(tmp_path), "scrape_seconds": 0.5}})
    needed = {"run_cell": [str(tmp_path / "results" / watched.cells[0].raw)]}
    with pytest.raises(OwnershipError, match=rf"^{BEGIN}.*; prometheus.url is {url}$"):
        lifecycle.begin(watched, tmp_path / "results", needed, ["snakemake"], "")
    assert not (tmp_path / "results").exists()


def test_an_answer_of_prometheus_passes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "NaN"]}]}}
    monkeypatch.setattr(Handler, "body", json.dumps(answer).encode())
    assert len(CheckedServer(url).vector("vector(1)")) == 1
