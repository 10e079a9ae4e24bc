"""A server that may be something else than Prometheus, such as a dashboard or a proxy that answers in its place."""

from typing import TYPE_CHECKING, Any

from sharebench.measure.cell.prometheus.server import ANSWER_SECONDS, PrometheusUnavailable, Server

if TYPE_CHECKING:
    from requests import Response

SHOWN_CHARACTERS = 60


class NotPrometheus(PrometheusUnavailable):
    """Something answers that does not speak Prometheus' API."""


class CheckedServer(Server):
    """A server whose answers must have the form of Prometheus' API; each query raises NotPrometheus otherwise."""

    def __init__(self, url: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        super().__init__(url, answer_seconds)
        self._session.hooks["response"].append(_refuse_other_form)


def _refuse_other_form(response: "Response", **_: Any) -> None:
    # Another status has its own message.
    if response.status_code != 200:
        return
    try:
        for series in response.json()["data"]["result"]:
            series["metric"].items()
            for at, value in series["values"] if "values" in series else [series["value"]]:
                float(at), float(value)
    except (AttributeError, KeyError, TypeError, ValueError):
        begin = " ".join(response.text[: 2 * SHOWN_CHARACTERS].split())[:SHOWN_CHARACTERS]
        kind = response.headers.get("Content-Type", "no type").partition(";")[0]
        said = f"it says {begin!r} ({kind})" if begin else "its answer is empty"
        raise NotPrometheus(f"what answers is not Prometheus' API: {said}; give the URL of Prometheus itself") from None
