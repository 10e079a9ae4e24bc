"""Questions to a Prometheus server, through prometheus-api-client."""

import os
from collections.abc import Mapping
from typing import Any

from sharebench.core.counters import Samples
from sharebench.core.files import Refusal

TOKEN_VARIABLE = "SHAREBENCH_PROMETHEUS_TOKEN"
# An answer takes milliseconds; a server that reads its log after a restart takes seconds, and says 503 meanwhile.
ANSWER_SECONDS = 10

Labels = Mapping[str, str]


class PrometheusUnavailable(Refusal):
    """The server cannot be reached or does not understand the question; the message is one line."""


def selector(name: str, labels: Labels) -> str:
    """A series by its name and labels, as PromQL has it."""
    escaped = {key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in labels.items()}
    inside = ",".join(f'{key}="{value}"' for key, value in escaped.items())
    return f"{name}{{{inside}}}"


def duration(seconds: float) -> str:
    """A duration in PromQL, to the millisecond."""
    return f"{round(1000 * seconds)}ms"


class Server:
    """A Prometheus at a URL. With a token in SHAREBENCH_PROMETHEUS_TOKEN it is asked as its bearer."""

    def __init__(self, url: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        # Imported here: it takes a tenth of a second, and only cells that are watched need it.
        import requests
        from prometheus_api_client import PrometheusConnect
        from urllib3.util.retry import Retry

        self.url = url.rstrip("/")
        self._session = requests.Session()
        if token := os.environ.get(TOKEN_VARIABLE):
            self._session.headers["Authorization"] = f"Bearer {token}"
        # Whoever asks decides how long to go on.
        never = Retry(total=0)
        self._client = PrometheusConnect(self.url, retry=never, timeout=answer_seconds, session=self._session)

    def _ask(self, query: str, at: float | None) -> Any:
        from prometheus_api_client.exceptions import PrometheusApiClientException
        from requests.exceptions import RequestException

        try:
            return self._client.custom_query(query, {} if at is None else {"time": f"{at:.3f}"})
        except PrometheusApiClientException as error:
            raise PrometheusUnavailable(f"Prometheus refuses: {' '.join(str(error).split()):.200}") from None
        except (RequestException, ValueError) as error:
            # Its words name hosts, which have no place in a record.
            raise PrometheusUnavailable(f"Prometheus does not answer ({type(error).__name__})") from None

    def vector(self, query: str, at: float | None = None) -> list[tuple[Labels, float]]:
        """Labels and value of each series of an instant query, at a moment (epoch seconds) or now."""
        return [(each["metric"], float(each["value"][1])) for each in self._ask(query, at)]

    def samples(self, series: str, seconds: float, at: float) -> list[tuple[Labels, Samples]]:
        """The raw samples of each series in the seconds up to a moment (epoch), as they were scraped."""
        return self._ranges(f"{series}[{duration(seconds)}]", at)

    def time_series(self, query: str, hours: float, step_seconds: float, at: float) -> list[tuple[Labels, Samples]]:
        """The values of each series of a query in the hours up to a moment (epoch), at multiples of the step."""
        return self._ranges(f"({query})[{duration(3600 * hours)}:{duration(step_seconds)}]", at)

    def _ranges(self, query: str, at: float) -> list[tuple[Labels, Samples]]:
        found = self._ask(query, at)
        return [(each["metric"], [(float(t), float(value)) for t, value in each["values"]]) for each in found]
