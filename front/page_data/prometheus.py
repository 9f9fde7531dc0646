"""Traffic of the services, from the metrics of Envoy in Prometheus.

    services:
      ml-team/chat: {requestsPerSecond: 12.5, errorsPerSecond: 0.1, retriesPerSecond: 2,
                     p50Milliseconds: 80, p99Milliseconds: 900, ejectedEndpoints: 1}

The gateway of the control cluster counts a service as one Envoy cluster, so its numbers
are sums over the endpoints. Only the administrator sets the address, so no tenant can
make the front send requests.
"""

import asyncio
import json
import math
import ssl
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import aiohttp
import structlog

from api_types.clock import now_ms
from api_types.names import service_route_name
from scheduler import Owner

REST_SECONDS = 15.0
ANSWER_SECONDS = 5.0
BODY_BYTES_MAX = 8 * 1024 * 1024
_PATH = "api/v1/query"
_CLUSTER = "envoy_cluster_name"
_OURS = f'{_CLUSTER}=~"httproute/.+/ms-.+/rule/.+"'
_WINDOW = "5m"
COMPLETED = "envoy_cluster_upstream_rq_completed"
"""Requests of clients, without the attempts that Envoy repeated elsewhere."""
BY_CLASS = "envoy_cluster_upstream_rq_xx"
DURATIONS = "envoy_cluster_upstream_rq_time_bucket"
RETRIED = "envoy_cluster_retry_upstream_rq_completed"
EJECTED = "envoy_cluster_outlier_detection_ejections_active"


def _rate(metric: str, more: str = "", also: str = "") -> str:
    return f"sum by ({_CLUSTER}{also}) (rate({metric}{{{_OURS}{more}}}[{_WINDOW}]))"


_DURATIONS = _rate(DURATIONS, also=", le")
QUERIES = {
    "requestsPerSecond": _rate(COMPLETED),
    "errorsPerSecond": _rate(BY_CLASS, ',envoy_response_code_class="5"'),
    "retriesPerSecond": _rate(RETRIED),
    "p50Milliseconds": f"histogram_quantile(0.5, {_DURATIONS})",
    "p99Milliseconds": f"histogram_quantile(0.99, {_DURATIONS})",
    "ejectedEndpoints": f"max by ({_CLUSTER}) ({EJECTED}{{{_OURS}}})",
}
log = structlog.get_logger("modelplane.front.page")


class UnusableAnswer(Exception):
    """Prometheus did not answer as documented. The message says why."""


class Traffic:
    """The last numbers of all services, read at most every `REST_SECONDS`."""

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the address of Prometheus; empty if there is none."""
        self._address, self._tls, self._clock = address.rstrip("/"), tls, clock
        self._turn = asyncio.Lock()
        self._until = 0.0
        self._clusters: dict[str, dict[str, float]] = {}
        self._at = 0
        self._problem = ""

    async def of(self, services: Iterable[Owner]) -> dict[str, Any]:
        """Return the numbers of services as JSON.

        `at` is the time of the numbers in milliseconds since 1970, and `problem` why
        they could not be read again.
        """
        if not self._address:
            return {"configured": False}
        async with self._turn:
            if self._clock() >= self._until:
                await self._read()
                self._until = self._clock() + REST_SECONDS
        return {
            "configured": True,
            "at": self._at,
            "problem": self._problem,
            "services": self._of(services),
        }

    def _of(self, services: Iterable[Owner]) -> dict[str, dict[str, float]]:
        by_route: dict[str, dict[str, float]] = {}
        for name, numbers in self._clusters.items():
            by_route.setdefault(name.rpartition("/rule/")[0], {}).update(numbers)
        found = {}
        for namespace, name in services:
            route = f"httproute/{namespace}/{service_route_name(namespace, name)}"
            if route in by_route:
                found[f"{namespace}/{name}"] = by_route[route]
        return found

    async def _read(self) -> None:
        problem = ""
        try:
            connector = aiohttp.TCPConnector(ssl=self._tls or True)
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                aiohttp.ClientSession(
                    connector=connector, cookie_jar=aiohttp.DummyCookieJar()
                ) as session,
                asyncio.TaskGroup() as group,
            ):
                asked = {
                    number: group.create_task(self._ask(session, query))
                    for number, query in QUERIES.items()
                }
            clusters: dict[str, dict[str, float]] = {}
            for number, task in asked.items():
                for name, value in task.result().items():
                    clusters.setdefault(name, {})[number] = value
            self._clusters, self._at = clusters, now_ms()
        except* TimeoutError:
            problem = f"no complete response within {ANSWER_SECONDS:.0f} s"
        except* (UnusableAnswer, aiohttp.ClientError, OSError, ValueError) as errors:
            first = errors.exceptions[0]
            problem = str(first)[:256] or type(first).__name__
        if problem and problem != self._problem:
            log.warning("cannot read metrics from Prometheus", problem=problem)
        self._problem = problem

    async def _ask(
        self, session: aiohttp.ClientSession, query: str
    ) -> dict[str, float]:
        async with session.get(
            f"{self._address}/{_PATH}", params={"query": query}, allow_redirects=False
        ) as answer:
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part
                if len(body) > BODY_BYTES_MAX:
                    raise UnusableAnswer(
                        f"the response has more than {BODY_BYTES_MAX} bytes"
                    )
            if answer.status != HTTPStatus.OK:
                raise UnusableAnswer(f"the HTTP status is {answer.status}")
        return values_of(json.loads(bytes(body)))


def values_of(tree: Any) -> dict[str, float]:
    """Return the values of a vector by Envoy cluster, without NaN and infinity.

    Raises `UnusableAnswer`.
    """
    try:
        if tree["status"] != "success" or tree["data"]["resultType"] != "vector":
            raise UnusableAnswer("the response is not a vector of Prometheus")
        rows = [
            (str(each["metric"].get(_CLUSTER, "")), float(each["value"][1]))
            for each in tree["data"]["result"]
        ]
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise UnusableAnswer("the response is not a vector of Prometheus") from error
    return {name: value for name, value in rows if math.isfinite(value)}
