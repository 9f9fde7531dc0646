"""Scrapes metrics of deployments from endpoints, or from a gateway in front of them.

    deployments:
    - namespace: ml-team
      name: qwen
      urls: ["http://gateway.example.com:9090/metrics"]
      queueDepth: vllm:num_requests_waiting
      runningRequests: vllm:num_requests_running
      labels: {model_name: qwen}

Addresses come only from this file, which the administrator writes, so no tenant can
make the front send requests. A metric is the sum over all addresses. If one of them
does not answer or lacks the metric, nothing is stored: a partial sum would scale the
deployment down. Scraped metrics are read and expire like pushed ones. The front reloads
the file when it changes.
"""

import asyncio
import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

import aiohttp
import structlog
from prometheus_client.parser import text_string_to_metric_families
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from front.access.files import FileSection, Text, WatchedFile
from front.scaling.fields import NUMBER_MAX
from front.scaling.numbers import QUEUE_DEPTH, RUNNING_REQUESTS, Numbers, Told
from front.store.projection import ObjectKey, Projection

ANSWER_SECONDS = 5.0
BODY_BYTES_MAX = 4 * 1024 * 1024
SAMPLES_MAX = 1_000
"""The limit for one metric in one response."""
AT_ONCE = 32
"""The number of concurrent requests."""
_URLS_MAX = 512
_KIND = "ModelDeployment"
_OPEN_METRICS = "application/openmetrics-text"
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}
# The exceptions of the parser for malformed lines.
_NOT_A_SAMPLE = (ValueError, IndexError, KeyError, TypeError, RuntimeError)

log = structlog.get_logger("modelplane.front")


def _url(text: str) -> str:
    parts = urlsplit(text)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or "@" in parts.netloc
        or "#" in text
        or not text.isprintable()
    ):
        raise ValueError(
            "must be an http:// or https:// address without user, password and fragment"
        )
    if parts.port == 0:
        raise ValueError("must have a port between 1 and 65535")
    return text


Url = Annotated[
    str, StringConstraints(min_length=1, max_length=2048), AfterValidator(_url)
]
Metric = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,252}$")]


class Scraped(FileSection):
    """The addresses and metric names of one deployment.

    Only samples with all of `labels` count.
    """

    namespace: Text
    name: Text
    urls: Annotated[tuple[Url, ...], Field(min_length=1, max_length=16)]
    queue_depth: Metric | None = None
    running_requests: Metric | None = None
    labels: Annotated[dict[str, str], Field(max_length=16)] = Field(
        default_factory=dict
    )

    @model_validator(mode="after")
    def _names_a_metric(self) -> Self:
        if not self.metrics:
            raise ValueError(
                f"one of {QUEUE_DEPTH}, {RUNNING_REQUESTS} is required; set it to the "
                "name of a Prometheus metric"
            )
        return self

    @property
    def key(self) -> ObjectKey:
        """The key of the deployment in the projection."""
        return ObjectKey(_KIND, self.namespace, self.name)

    @property
    def metrics(self) -> Mapping[str, str]:
        """The name of the Prometheus metric for each metric of the deployment."""
        named = {QUEUE_DEPTH: self.queue_depth, RUNNING_REQUESTS: self.running_requests}
        return {number: metric for number, metric in named.items() if metric}


class ScrapeFile(FileSection):
    """The content of the scrape file."""

    deployments: tuple[Scraped, ...] = ()

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if len({each.key for each in self.deployments}) != len(self.deployments):
            raise ValueError(
                "deployments: a deployment occurs twice; list all its urls in one entry"
            )
        count = sum(len(each.urls) for each in self.deployments)
        if count > _URLS_MAX:
            raise ValueError(
                f"deployments: the limit is {_URLS_MAX} urls in total, got {count}"
            )
        return self


class UnusableMetrics(Exception):
    """A response contains no usable metrics. The message says why."""


@dataclass(frozen=True)
class Sums:
    """The sums of one response.

    `observed` is the time of the oldest sample; None if no sample has a time.
    """

    values: Mapping[str, float]
    observed: datetime | None


def sums_of(body: bytes, metrics: Mapping[str, str], labels: Mapping[str, str]) -> Sums:
    """Sum the samples of each metric in a Prometheus text response.

    Raises `UnusableMetrics`.
    """
    try:
        lines = body.decode().split("\n")
    except UnicodeDecodeError:
        raise UnusableMetrics("the response is not UTF-8 text") from None
    values: dict[str, float] = {}
    times: list[float] = []
    for number, metric in metrics.items():
        samples = _samples(lines, metric, labels)
        values[number] = sum(sample.value for sample in samples)
        all_valid = all(0 <= sample.value < math.inf for sample in samples)
        if not all_valid or values[number] > NUMBER_MAX:
            raise UnusableMetrics(
                f"the response has a sample of {metric} that is not a number between 0 "
                f"and {NUMBER_MAX:.0f}"
            )
        known = [each.timestamp for each in samples if each.timestamp is not None]
        times += map(float, known)
    try:
        observed = datetime.fromtimestamp(min(times), UTC) if times else None
    except (ValueError, OverflowError, OSError):
        raise UnusableMetrics(
            "the response has a sample with an invalid time"
        ) from None
    return Sums(values, observed)


def _samples(lines: list[str], metric: str, labels: Mapping[str, str]) -> list[Any]:
    """Parse the samples of a metric that have these labels.

    Raises `UnusableMetrics`.
    """
    starts = (f"{metric}{{", f"{metric} ", f"{metric}\t")
    own = [line for line in lines if line.startswith(starts)]
    if len(own) > SAMPLES_MAX:
        raise UnusableMetrics(
            f"the response has more than {SAMPLES_MAX} samples of {metric}"
        )
    samples: list[Any] = []
    try:
        for line in own:
            for family in text_string_to_metric_families(line):
                samples += family.samples
    except _NOT_A_SAMPLE:
        raise UnusableMetrics(
            f"the response has a malformed sample of {metric}"
        ) from None
    meant = [each for each in samples if labels.items() <= each.labels.items()]
    if not meant:
        raise UnusableMetrics(
            f"the response has no sample of {metric} with the labels of the file"
        )
    return meant


class Scraper:
    """Scrapes the deployments of a file at an interval."""

    def __init__(
        self,
        file: WatchedFile[ScrapeFile],
        told: Told,
        projection: Projection,
        interval: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Set the interval in seconds, and the trusted authorities.

        With `tls` None, the authorities of the machine are trusted.
        """
        self._file, self._told, self._projection = file, told, projection
        self._interval, self._tls = interval, tls
        self._turns = asyncio.Semaphore(AT_ONCE)
        # Each deployment has its own task, so slow addresses do not delay others. No
        # second task starts while one is running.
        self._tasks: dict[ObjectKey, asyncio.Task[None]] = {}
        self._problems: dict[ObjectKey, str] = {}

    async def run(self) -> None:
        """Scrape until cancelled."""
        connector = aiohttp.TCPConnector(ssl=self._tls or True, limit=AT_ONCE)
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        ) as session:
            try:
                while True:
                    try:
                        self._begin(session)
                    except Exception as error:
                        # A bug must not end the only task that scrapes.
                        log.exception("cannot scrape deployments", exc_info=error)
                    await asyncio.sleep(self._interval)
            finally:
                tasks = list(self._tasks.values())
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, session: aiohttp.ClientSession) -> None:
        if problem := self._file.refresh():
            log.error(
                "cannot load the scrape file; its previous content stays in use",
                problem=problem,
            )
        wanted = {each.key: each for each in self._file.content.deployments}
        self._problems = {
            key: problem for key, problem in self._problems.items() if key in wanted
        }
        for key, each in wanted.items():
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._scrape(session, each))
                self._tasks[key].add_done_callback(partial(self._ended, key))

    def _ended(self, key: ObjectKey, _task: "asyncio.Task[None]") -> None:
        del self._tasks[key]

    async def _scrape(self, session: aiohttp.ClientSession, scraped: Scraped) -> None:
        stored = self._projection.get(scraped.key)
        if stored is None:
            return
        problem, now = "", self._told.now()
        try:
            async with asyncio.TaskGroup() as group:
                asked = [
                    group.create_task(self._sums(session, scraped, url))
                    for url in scraped.urls
                ]
            found = [task.result() for task in asked]
            values = {
                number: sum(each.values[number] for each in found)
                for number in scraped.metrics
            }
            observed = min([now, *(each.observed for each in found if each.observed)])
            self._told.tell(scraped.key, Numbers(stored.uid, observed, values))
        except* (
            UnusableMetrics,
            aiohttp.ClientError,
            OSError,
            TimeoutError,
            ValueError,
        ) as errors:
            first = errors.exceptions[0]
            problem = str(first)[:512] or type(first).__name__
        except* Exception as errors:
            log.exception("cannot scrape a deployment", exc_info=errors)
            problem = "internal error"
        self._note(scraped.key, problem)

    def _note(self, key: ObjectKey, problem: str) -> None:
        if problem and problem != self._problems.get(key):
            log.warning(
                "cannot scrape a deployment; its metrics will expire",
                deployment="/".join(key[1:]),
                problem=problem,
            )
        if not problem and self._problems.get(key):
            log.info("scraping a deployment again", deployment="/".join(key[1:]))
        self._problems[key] = problem

    async def _sums(
        self, session: aiohttp.ClientSession, scraped: Scraped, url: str
    ) -> Sums:
        """Scrape one address. Raises `UnusableMetrics`, and exceptions of aiohttp."""
        where = _shown(url)
        async with self._turns:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    body = await _read(session, url)
            except TimeoutError:
                raise UnusableMetrics(
                    f"{where}: no complete response within {ANSWER_SECONDS:.0f} s"
                ) from None
            except UnusableMetrics as problem:
                raise UnusableMetrics(f"{where}: {problem}") from None
        try:
            # Parsing a large response takes a moment, so it runs in a thread.
            return await asyncio.to_thread(
                sums_of, body, scraped.metrics, scraped.labels
            )
        except UnusableMetrics as problem:
            raise UnusableMetrics(f"{where}: {problem}") from None


async def _read(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url, allow_redirects=False, headers=_HEADERS) as answer:
        if answer.status != HTTPStatus.OK:
            raise UnusableMetrics(
                f"the HTTP status is {answer.status}; redirects are not followed"
            )
        if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise UnusableMetrics("the response is compressed, which is not supported")
        if answer.content_type == _OPEN_METRICS:
            raise UnusableMetrics(
                "the response has the format OpenMetrics instead of Prometheus text"
            )
        body = bytearray()
        async for part in answer.content.iter_any():
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise UnusableMetrics(
                    f"the response has more than {BODY_BYTES_MAX} bytes"
                )
    return bytes(body)


def _shown(url: str) -> str:
    """Return an address without its query, which may contain a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
