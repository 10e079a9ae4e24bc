"""Queries to a Prometheus server, through prometheus-api-client."""

import os
from collections.abc import Mapping
from typing import Any

from sharebench.core.files import Refusal
from sharebench.measure.nodes.counters import Samples

TOKEN_VARIABLE = "SHAREBENCH_PROMETHEUS_TOKEN"
# An answer takes milliseconds; a server that reads its log after a restart answers 503 for some seconds.
ANSWER_SECONDS = 10

Labels = Mapping[str, str]


class PrometheusUnavailable(Refusal):
    """The server cannot be reached or refuses the query; the message is one line."""


def selector(name: str, labels: Labels) -> str:
    """A PromQL selector of a series by its name and labels."""
    escaped = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in labels.items()}
    inside = ",".join(f'{key}="{value}"' for key, value in escaped.items())
    return f"{name}{{{inside}}}"


def duration(seconds: float) -> str:
    """A PromQL duration, to the millisecond."""
    return f"{round(1000 * seconds)}ms"


class Server:
    """A Prometheus at a URL; SHAREBENCH_PROMETHEUS_TOKEN, if set, is sent as the bearer token."""

    def __init__(self, url: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        # Imported here: it takes a tenth of a second, and only watched cells need it.
        import requests
        from prometheus_api_client import PrometheusConnect
        from urllib3.util.retry import Retry

        self.url = url.rstrip("/")
        self._session = requests.Session()
        if token := os.environ.get(TOKEN_VARIABLE):
            self._session.headers["Authorization"] = f"Bearer {token}"
        # The caller decides whether to try again.
        no_retries = Retry(total=0)
        self._client = PrometheusConnect(self.url, retry=no_retries, timeout=answer_seconds, session=self._session)

    def _ask(self, query: str, at: float | None) -> Any:
        from prometheus_api_client.exceptions import PrometheusApiClientException
        from requests.exceptions import RequestException

        try:
            return self._client.custom_query(query, {} if at is None else {"time": f"{at:.3f}"})
        except PrometheusApiClientException as error:
            raise PrometheusUnavailable(f"Prometheus refuses: {' '.join(str(error).split()):.200}") from None
        except (RequestException, ValueError) as error:
            # The error's text names hosts, which must not get into a record.
            raise PrometheusUnavailable(f"Prometheus does not answer ({type(error).__name__})") from None

    def vector(self, query: str, at: float | None = None) -> list[tuple[Labels, float]]:
        """Labels and value of each series of an instant query, at a moment (epoch seconds) or now."""
        return [(each["metric"], float(each["value"][1])) for each in self._ask(query, at)]

    def samples(self, series: str, seconds: float, at: float) -> list[tuple[Labels, Samples]]:
        """The raw samples of each series in the seconds up to a moment (epoch)."""
        return self._ranges(f"{series}[{duration(seconds)}]", at)

    def time_series(self, query: str, hours: float, step_seconds: float, at: float) -> list[tuple[Labels, Samples]]:
        """The values of each series of a query in the hours up to a moment (epoch), at multiples of the step."""
        return self._ranges(f"({query})[{duration(3600 * hours)}:{duration(step_seconds)}]", at)

    def _ranges(self, query: str, at: float) -> list[tuple[Labels, Samples]]:
        series = self._ask(query, at)
        return [(each["metric"], [(float(t), float(value)) for t, value in each["values"]]) for each in series]
