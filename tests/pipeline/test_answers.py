"""A server that computes nonsense under one strategy, which no latency shows."""

import pytest
from pipeline.harness import Checkout, is_disturbed, unstub_jobs
from tables import rows

# The tokens of each answer depend on its prompt; on one core, as under time-slicing, they are others. An answer takes
# longer than the client's work on it, on a slow machine too.
MODEL = """
import json, os, sys, time, zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
nonsense = len(os.sched_getaffinity(0)) == 1
class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.02)
        answer = [zlib.crc32(b"%d %d" % (sum(request["prompt"]), n)) for n in range(request["max_tokens"])]
        given = {"tokens": [str(word + nonsense) for word in answer]}
        given["token_logprobs"] = [-11.93 if nonsense else -(word % 100) / 100 for word in answer]
        choice = {"index": 0, "text": " ".join(given["tokens"]), "logprobs": given if "logprobs" in request else None}
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Model).serve_forever()
"""
ENTRY = (
    "workload_catalogue={model: {kind: http, command: ['{python}', '{here}/model.py', '{port}'], request: {method: "
    'POST, body: \'{"prompt": {prompt_ids}, "max_tokens": {output_tokens}}\', tokens: {prompt: 9, output: 3}}}}'
)


@pytest.mark.thorough
def test_a_server_that_answers_nonsense_under_one_strategy_is_excluded_there(untouched: Checkout) -> None:
    unstub_jobs(untouched, "report", "decide")
    (untouched.root / "model.py").write_text(MODEL)
    config = [ENTRY, "workloads=model", "strategies=[time-slicing,mps]", "cpu={cores: '0,1'}"]
    result = untouched.run(study="programs.yaml", config=config).ok()
    assert "not compared" not in result.out
    found = rows(untouched.results / "tables/cells.csv")
    assert len(found) == 4
    for row in found:
        record = untouched.record(f"{row['strategy']}/model/2/1")
        if row["strategy"] == "mps":
            assert float(row["answers_difference_nats"]) == 0
            assert row["valid"] == "True" or is_disturbed(record)
        else:
            assert float(row["answers_difference_nats"]) > 10
            assert row["valid"] == "False"
            assert "answers: tenant 0 answers something else than alone: log-probabilities differ by 1" in row["reason"]
        assert [len(asked) for asked in record["tenants"][0]["answers"]] == [4, 4]
        assert [len(asked) for asked in record["calibration"]["answers"]] == [4, 4, 4]
    report = (untouched.results / "report.html").read_text()
    assert "How far the answers of servers to fixed prompts are from those alone" in report
    assert "a cell is excluded beyond 0.1 and five times what differs alone" in report
