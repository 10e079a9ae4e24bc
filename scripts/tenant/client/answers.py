"""Asks a language model for the log-probabilities of its answers to a few fixed prompts, one after another.

The prompts are requests as the workload sends them, of a seed of their own, so that they suit the server's API, model
and chat template; at temperature 0 and of TOKENS tokens. Equal texts prove nothing: rounding alone
changes a greedy answer, after which all tokens differ.
"""

import http.client
import json
import math
from collections.abc import Callable, Mapping

from tenant.contract import Answer

PROMPTS, TOKENS = 4, 32
# Even a model on a CPU answers within it.
TIMEOUT_SECONDS = 120.0


def fixed_request(body: bytes) -> bytes | None:
    """The request that asks for a short answer with its log-probabilities; None for the body of another API.

    Servers of completions take a number of alternatives, those of chat completions a flag.
    """
    try:
        document = json.loads(body)
    except ValueError:
        return None
    if not isinstance(document, dict) or not {"messages", "prompt"} & document.keys():
        return None
    document.pop("stream_options", None)
    length = "max_completion_tokens" if "max_completion_tokens" in document else "max_tokens"
    document |= {"stream": False, "temperature": 0, length: TOKENS}
    document |= {"logprobs": True, "top_logprobs": 1} if "messages" in document else {"logprobs": 1}
    return json.dumps(document).encode()


def ask(
    address: tuple[str, int], method: str, path: str, headers: Mapping[str, str], body: Callable[[int], bytes]
) -> list[Answer]:
    """The answers to the distinct ones of PROMPTS requests; empty where these are of another API.

    `body` returns the workload's request of a number.
    """
    requests = dict.fromkeys(fixed_request(body(number)) for number in range(PROMPTS))
    return [_answer(address, method, path, headers, request) for request in requests if request is not None]


def _answer(address: tuple[str, int], method: str, path: str, headers: Mapping[str, str], request: bytes) -> Answer:
    connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
    try:
        connection.request(method, path, request, dict(headers))
        response = connection.getresponse()
        return parse_answer(response.status, response.read())
    except (OSError, http.client.HTTPException):
        return parse_answer(None, b"")
    finally:
        connection.close()


def parse_answer(status: int | None, content: bytes) -> Answer:
    """The tokens of the first choice in an answer, with their log-probabilities where it has any."""
    tokens, logprobs = list[str](), list[float | None]()
    try:
        given = json.loads(content)["choices"][0]["logprobs"]
        if (entries := given.get("content")) is not None:
            pairs = [(entry["token"], entry["logprob"]) for entry in entries]
        else:
            pairs = list(zip(given["tokens"], given["token_logprobs"], strict=True))
        for token, value in pairs:
            tokens.append(str(token))
            logprobs.append(round(value, 4) if value is not None and math.isfinite(value) else None)
    except (ValueError, LookupError, TypeError, AttributeError):
        return {"status": status, "tokens": [], "logprobs": []}
    return {"status": status, "tokens": tokens, "logprobs": logprobs}
