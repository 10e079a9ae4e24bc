"""Counts the tokens in a streamed answer.

An event is a token event if it carries text: content, reasoning, a call of a tool or function, a refusal. It has as
many tokens as the usage in it is above the number counted so far, else one. Usage without text, a role, a finish reason
or an empty text make no token event (in AIPerf neither; vLLM's chat benchmark counts the role). Whatever else comes in
place of tokens fails the request: an error in any spelling, a document of unknown form, an answer that does not stream.

FORMS lists the forms that are read. Sources: the API references of OpenAI (chat completions, completions, responses)
and Anthropic (messages), the documents of Ollama's, llama.cpp's, TGI's and Triton's servers.
"""

import json
import re
import zlib
from array import array
from typing import Any, NamedTuple

from tenant.client.framing import ERROR, Framing, JsonLines, Message, ServerSentEvents, server_error
from tenant.recorder import TokenStream
from tenant.workload import RequestError

Document = dict[str, Any]
DONE = "[DONE]"
TYPE = "type"


class Form(NamedTuple):
    """Where documents of an API have text, usage and the end of the stream.

    `text` are keys of a document, `usage` paths of keys. `end` is what must come last: a value of the key `end_key`
    (true or a text if None), or DONE; None if the end of the answer is all there is.
    """

    text: tuple[str, ...]
    usage: tuple[tuple[str, ...], ...]
    end_key: str | None = None
    end: tuple[str, ...] = ()

    def end_words(self) -> str:
        return " or ".join(self.end) if self.end else f'"{self.end_key}"'


CHAT = Form(("choices",), (("usage", "completion_tokens"),), end=(DONE,))
RESPONSES = Form(
    ("delta",), (("response", "usage", "output_tokens"),), TYPE, ("response.completed", "response.incomplete")
)
MESSAGES = Form(
    ("delta",), (("usage", "output_tokens"), ("message", "usage", "output_tokens")), TYPE, ("message_stop",)
)
# Forms by a key that their documents have; the first that a document has counts.
FORMS = {
    "choices": CHAT,
    "usage": CHAT,
    "response": Form(("response", "thinking"), (("eval_count",),), "done"),
    "message": Form(("message",), (("eval_count",),), "done"),
    "content": Form(("content",), (("tokens_predicted",),), "stop"),
    "token": Form(("token",), (("details", "generated_tokens"),), "generated_text"),
    "text_output": Form(("text_output",), ()),
}
# Documents with a `type` of these are of the Responses or the Messages API; of them, only deltas have text.
RESPONSES_PREFIX = "response."
MESSAGES_TYPES = (
    "message_start",
    "message_delta",
    "message_stop",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
)
IGNORED_TYPES = ("ping", "keepalive", "heartbeat")
ERROR_TYPES = (ERROR, "response.failed", "response.error", "response.cancelled")
ERROR_FINISHES = (ERROR, "abort")
# What may be in each key that leads to text: these keys of an object or of a list of objects, else only a text.
DELTA = ("content", "reasoning", "reasoning_content", "thinking", "refusal", "tool_calls", "function_call")
CALL = ("name", "arguments")
PARTS: dict[str, tuple[str, ...]] = {
    "choices": ("text", "delta"),
    "delta": (*DELTA, "text", "partial_json"),
    "message": DELTA,
    "content": ("text", "thinking"),
    "thinking": ("text",),
    "tool_calls": ("function", "custom"),
    "function_call": CALL,
    "function": CALL,
    "custom": ("name", "input"),
    "arguments": (),
    "token": ("text",),
}
# Keys of PARTS whose objects may report an error.
REPORTING = ("choices", "delta", "message")
# Keys of PARTS that may be a text themselves.
TEXT_OR_PARTS = ("delta", "content", "thinking", "arguments")
LARGEST_USAGE = 1 << 40
# Some servers compress what they were asked not to.
GZIP, GZIP_WINDOW, MAX_UNPACKED_BYTES = b"\x1f\x8b", 31, 1 << 18
JSON_TYPE = "application/json"
ERROR_MARK = b'"error"'
EVENT_STREAM = "text/event-stream"
# Servers also send server-sent events as text/plain, or without a type.
EVENTS_BEGIN = re.compile(rb"(?:\xef\xbb\xbf)?(?:data|event|id|retry|error)?:")
LONGEST_BEGIN = 16


class TokenEvents:
    """The token events of one streamed answer, whose content type may be wrong or empty."""

    def __init__(self, content_type: str, content_encoding: str = "") -> None:
        """Raises RequestError if the answer is compressed."""
        if content_encoding.lower() not in ("", "identity"):
            raise compressed(content_encoding)
        self._times_ns = array("q")
        self._tokens = array("q")
        self._documents = self._counted = self._reported = 0
        self._content_type = media_type(content_type)
        self._begin = b""
        self._framing: Framing | None = None
        self._form: Form | None = None
        self._is_done = self._has_said_more = False

    def take(self, piece: bytes, now_ns: int) -> None:
        """Take the next bytes of the answer, which arrived at `now_ns`. Raises RequestError."""
        if self._framing is None:
            # Servers send line breaks until they have something to say.
            piece = self._begin = (self._begin + piece).lstrip()
            self._framing = self._recognised(piece)
            if self._framing is None:
                return
        for message in self._framing.take(piece):
            self._message(message, now_ns)

    def _recognised(self, begin: bytes) -> Framing | None:
        """The framing of an answer that begins like this; None if that is too short. Raises RequestError."""
        if begin.startswith(GZIP):
            raise compressed("gzip")
        if EVENTS_BEGIN.match(begin) or (begin and self._content_type == EVENT_STREAM and begin[:1] != b"{"):
            return ServerSentEvents()
        if begin.startswith(b"{") and self._content_type != JSON_TYPE:
            return JsonLines()
        if len(begin) < LONGEST_BEGIN and begin[:1] != b"{":
            return None
        raise self._no_stream(begin)

    def _no_stream(self, text: bytes) -> RequestError:
        what = self._content_type or "an unknown type"
        return RequestError(
            f'the server did not stream ("stream": true?), but sent {what}: {text.decode(errors="replace")}'
        )

    def end(self, now_ns: int) -> None:
        """End the answer. Raises RequestError if it is incomplete."""
        if self._framing is None:
            raise self._no_stream(self._begin) if self._begin else RequestError("the answer is empty")
        if (message := self._framing.rest()) is not None and self._is_taken_at_end(message):
            self._message(message, now_ns)
        if self._documents == 1 and isinstance(self._framing, JsonLines):
            raise self._no_stream(self._begin)
        # Lines of JSON have no end mark that all servers send, but HTTP has one, and some servers say so in each line.
        form = None if isinstance(self._framing, JsonLines) and not self._has_said_more else self._form
        if form is not None and (form.end or form.end_key) and not self._is_done:
            raise RequestError(f"the stream ended without {form.end_words()}")
        if not self._times_ns:
            raise RequestError("the answer has no token")

    def _is_taken_at_end(self, message: Message) -> bool:
        # The standard discards an event without a blank line, but neither a line nor what only ends the stream.
        return isinstance(self._framing, JsonLines) or message.event == ERROR or message.data.strip() == DONE

    def stream(self, intended_ns: int, ended_ns: int | None) -> TokenStream:
        """The tokens that have arrived; the answer may not have ended."""
        tokens = self._tokens[:]
        return TokenStream(intended_ns, ended_ns, self._times_ns[: len(tokens)], tokens, self._reported or None)

    def _message(self, message: Message, now_ns: int) -> None:
        event, data = message
        if event == ERROR:
            raise server_error(data)
        if data.strip() == DONE:
            self._is_done |= self._form is None or self._form.end_key != TYPE
        elif data:
            self._documents += 1
            try:
                self._count(_parsed(data), event, data, now_ns)
            except RecursionError as error:
                raise RequestError("an event is nested too deeply") from error

    def _count(self, document: Document, event: str, data: str, now_ns: int) -> None:
        kind = document.get(TYPE, event)
        error = _reported_error(document)
        if error or _is_error(document, kind):
            raise server_error(error or document)
        form = CHAT if "choices" in document else _form(document, kind)
        if form is None:
            if document and kind not in IGNORED_TYPES:
                raise RequestError(f"an event is of no form that is read: {data}")
            return
        self._form = form
        usage = 0
        for path in form.usage:
            usage = max(usage, _usage(document, path))
        has_text = False
        if form.end_key != TYPE or kind.endswith("delta"):
            for key in form.text:
                has_text = _has_text(key, document.get(key)) or has_text
        if form is not CHAT and _is_end(form, document, kind):
            self._is_done = True
        self._has_said_more |= form.end_key is not None and document.get(form.end_key) is False
        if usage > self._reported:
            self._reported = usage
        if has_text:
            tokens = max(1, usage - self._counted)
            self._counted += tokens
            self._times_ns.append(now_ns)
            self._tokens.append(tokens)


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def compressed(how: str) -> RequestError:
    return RequestError(f"the answer is compressed ({how}), although the request says Accept-Encoding: identity")


def _parsed(data: str) -> Document:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise RequestError(f"an event is not a JSON object: {data}")
    return document


def error_in_answer(content: bytes) -> str | None:
    """What an answer of one JSON document reports as its error; a number there may be a result."""
    if content.startswith(GZIP):
        try:
            content = zlib.decompressobj(GZIP_WINDOW).decompress(content, MAX_UNPACKED_BYTES)
        except zlib.error:
            return None
    if ERROR_MARK not in content:
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    choices = document.get("choices")
    for part in (document, *(choices if isinstance(choices, list) else ())):
        error = part.get("error") if isinstance(part, dict) else None
        if error and type(error) not in (int, float):
            return str(server_error(error))
    return str(server_error(document)) if _is_error(document, document.get(TYPE)) else None


def _is_error(document: Document, kind: object) -> bool:
    return document.get("object") == ERROR or kind in ERROR_TYPES


def _reported_error(document: Document) -> object:
    response = document.get("response")
    in_response = response.get("error") if isinstance(response, dict) else None
    return document.get("error") or in_response


def _form(document: Document, kind: object) -> Form | None:
    if isinstance(kind, str):
        if kind.startswith(RESPONSES_PREFIX):
            return RESPONSES
        if kind in MESSAGES_TYPES:
            return MESSAGES
    return next((form for key, form in FORMS.items() if key in document), None)


def _is_end(form: Form, document: Document, kind: str) -> bool:
    if form.end:
        return kind in form.end
    return form.end_key is not None and document.get(form.end_key) not in (None, False)


def _malformed(key: str, value: object) -> RequestError:
    return RequestError(f"an event is of no form that is read: {json.dumps(key)}: {json.dumps(value)}")


def _has_text(key: str, value: Any) -> bool:
    """Whether there is text in the value of this key. Raises RequestError if something else is there."""
    if value is None:
        return False
    children = PARTS.get(key)
    if isinstance(value, str) and (children is None or key in TEXT_OR_PARTS):
        return value != ""
    has_text = False
    for part in value if isinstance(value, list) else (value,):
        if children is None or not isinstance(part, dict):
            raise _malformed(key, value)
        if key in REPORTING and part.get("error"):
            raise server_error(part["error"])
        if part.get("finish_reason") in ERROR_FINISHES:
            raise server_error(f"finish_reason: {part['finish_reason']}")
        for child, inner in part.items():
            has_text |= child in children and _has_text(child, inner)
    return has_text


def _usage(document: Document, path: tuple[str, ...]) -> int:
    """Number of output tokens at this path; 0 if there is none. Raises RequestError if something else is there."""
    value: Any = document
    for key in path:
        if not isinstance(value, dict):
            raise _malformed(key, value)
        value = value.get(key)
        if value is None:
            return 0
    if type(value) is not int and not (isinstance(value, float) and value.is_integer()):
        raise _malformed(path[-1], value)
    if not 0 <= value < LARGEST_USAGE:
        raise _malformed(path[-1], value)
    return int(value)
