"""Numbers that are scraped: of deployments whose endpoints, or a gateway before them, the front can reach itself.

    deployments:
    - namespace: ml-team
      name: qwen
      urls: ["http://gateway.example.com:9090/metrics"]
      queueDepth: vllm:num_requests_waiting
      runningRequests: vllm:num_requests_running
      labels: {model_name: qwen}

Addresses come from this file of the administrator alone: no tenant chooses whom the front asks. A number is the sum over all addresses, and
if one of them does not answer, or does not name it, nothing is noted: a part of the sum would scale the deployment down. What is noted is
read, and becomes old, as what is told. The file is read again when it changes.
"""

import asyncio
import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Self
from urllib.parse import urlsplit

import aiohttp
import structlog
from prometheus_client.parser import text_string_to_metric_families
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from front.access.files import Section, Text, WatchedFile
from front.scaling.fields import NUMBER_MAX
from front.scaling.numbers import QUEUE_DEPTH, RUNNING_REQUESTS, Numbers, Told
from front.store.projection import Key, Projection

ANSWER_SECONDS = 5.0
BODY_BYTES_MAX = 4 * 1024 * 1024
SAMPLES_MAX = 1_000
"""Of one metric in one answer."""
AT_ONCE = 32
"""Addresses that are asked at the same time."""
_URLS_MAX = 512
_KIND = "ModelDeployment"
_OPEN_METRICS = "application/openmetrics-text"
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}
# What the parser raises for a line that is none of the format.
_NOT_A_SAMPLE = (ValueError, IndexError, KeyError, TypeError, RuntimeError)

log = structlog.get_logger("modelplane.front")


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or "#" in text or not text.isprintable():
        raise ValueError("must be an address that begins with http:// or https://, without a user, a password or a fragment")
    if parts.port == 0:
        raise ValueError("must have a port between 1 and 65535")
    return text


Url = Annotated[str, StringConstraints(min_length=1, max_length=2048), AfterValidator(_url)]
Metric = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,252}$")]


class Scraped(Section):
    """One deployment: where its numbers are, and the names of the metrics that have them. `labels`: those that a sample must have."""

    namespace: Text
    name: Text
    urls: Annotated[tuple[Url, ...], Field(min_length=1, max_length=16)]
    queue_depth: Metric | None = None
    running_requests: Metric | None = None
    labels: Annotated[dict[str, str], Field(max_length=16)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_a_metric(self) -> Self:
        if not self.metrics:
            raise ValueError(f"one of {QUEUE_DEPTH}, {RUNNING_REQUESTS} is required; write the name of the metric that has it")
        return self

    @property
    def key(self) -> Key:
        """Name the deployment in the projection."""
        return Key(_KIND, self.namespace, self.name)

    @property
    def metrics(self) -> Mapping[str, str]:
        """Give the metric of each number."""
        named = {QUEUE_DEPTH: self.queue_depth, RUNNING_REQUESTS: self.running_requests}
        return {number: metric for number, metric in named.items() if metric}


class ScrapeFile(Section):
    """All of it."""

    deployments: tuple[Scraped, ...] = ()

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if len({each.key for each in self.deployments}) != len(self.deployments):
            raise ValueError("deployments: each may be there once; one may have several urls")
        if (count := sum(len(each.urls) for each in self.deployments)) > _URLS_MAX:
            raise ValueError(f"deployments: at most {_URLS_MAX} urls are scraped, got {count}")
        return self


class Unusable(Exception):
    """An answer gives no numbers; the text says why."""


@dataclass(frozen=True)
class Sums:
    """The sums of one answer. `observed`: when the oldest sample was so, None if no sample says when."""

    values: Mapping[str, float]
    observed: datetime | None


def sums_of(body: bytes, metrics: Mapping[str, str], labels: Mapping[str, str]) -> Sums:
    """Sum the samples of each metric in an answer, in the text format of Prometheus. Raises `Unusable`."""
    try:
        lines = body.decode().split("\n")
    except UnicodeDecodeError:
        raise Unusable("its answer is no text in UTF-8") from None
    values, times = dict[str, float](), list[float]()
    for number, metric in metrics.items():
        own = [line for line in lines if line.startswith(metric) and line[len(metric) : len(metric) + 1] in ("{", " ", "\t")]
        if len(own) > SAMPLES_MAX:
            raise Unusable(f"its answer has more than {SAMPLES_MAX} samples of {metric}")
        try:
            samples = [sample for line in own for family in text_string_to_metric_families(line) for sample in family.samples]
        except _NOT_A_SAMPLE:
            raise Unusable(f"its answer has a sample of {metric} that cannot be read") from None
        meant = [sample for sample in samples if all(sample.labels.get(label) == value for label, value in labels.items())]
        if not meant:
            raise Unusable(f"its answer has no sample of {metric} with the labels of the file")
        values[number] = sum(sample.value for sample in meant)
        if not all(math.isfinite(sample.value) and sample.value >= 0 for sample in meant) or values[number] > NUMBER_MAX:
            raise Unusable(f"its answer has a sample of {metric} that is no number between 0 and {NUMBER_MAX:.0f}")
        times += [float(sample.timestamp) for sample in meant if sample.timestamp is not None]
    try:
        observed = datetime.fromtimestamp(min(times), UTC) if times else None
    except (ValueError, OverflowError, OSError):
        raise Unusable("its answer has a sample with a time that is none") from None
    return Sums(values, observed)


class Scraper:
    """Scrapes the deployments of a file now and then."""

    def __init__(
        self, file: WatchedFile[ScrapeFile], told: Told, projection: Projection, interval: float, tls: ssl.SSLContext | None = None
    ) -> None:
        """`interval`: seconds; `tls`: which authorities certificates are checked with, None for those of the machine."""
        self._file, self._told, self._projection = file, told, projection
        self._interval, self._tls = interval, tls
        self._turns = asyncio.Semaphore(AT_ONCE)
        # A deployment whose addresses answer slowly delays no other, and is not asked again meanwhile.
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._problems: dict[Key, str] = {}

    async def run(self) -> None:
        """Scrape until it is cancelled."""
        connector = aiohttp.TCPConnector(ssl=self._tls or True, limit=AT_ONCE)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False) as session:
            try:
                while True:
                    try:
                        self._begin(session)
                    except Exception as error:
                        # A defect must not end the only task that scrapes.
                        log.exception("nothing is scraped", exc_info=error)
                    await asyncio.sleep(self._interval)
            finally:
                tasks = list(self._tasks.values())
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, session: aiohttp.ClientSession) -> None:
        if problem := self._file.refresh():
            log.error("the file of what is scraped cannot be read; the one of before holds", problem=problem)
        wanted = {each.key: each for each in self._file.content.deployments}
        self._problems = {key: problem for key, problem in self._problems.items() if key in wanted}
        for key, each in wanted.items():
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._scrape(session, each))
                self._tasks[key].add_done_callback(partial(self._ended, key))

    def _ended(self, key: Key, _task: "asyncio.Task[None]") -> None:
        del self._tasks[key]

    async def _scrape(self, session: aiohttp.ClientSession, scraped: Scraped) -> None:
        stored = self._projection.get(scraped.key)
        if stored is None:
            return
        problem, now = "", self._told.now()
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._sums(session, scraped, url)) for url in scraped.urls]
            found = [task.result() for task in asked]
            values = {number: sum(each.values[number] for each in found) for number in scraped.metrics}
            observed = min([now, *(each.observed for each in found if each.observed)])
            self._told.tell(scraped.key, Numbers(stored.uid, observed, values))
        except* (Unusable, aiohttp.ClientError, OSError, TimeoutError, ValueError) as errors:
            problem = str(errors.exceptions[0])[:512] or type(errors.exceptions[0]).__name__
        except* Exception as errors:
            log.exception("a deployment cannot be scraped", exc_info=errors)
            problem = "an error of this server"
        self._note(scraped.key, problem)

    def _note(self, key: Key, problem: str) -> None:
        if problem and problem != self._problems.get(key):
            log.warning("a deployment cannot be scraped; its numbers become old", deployment="/".join(key[1:]), problem=problem)
        if not problem and self._problems.get(key):
            log.info("a deployment is scraped again", deployment="/".join(key[1:]))
        self._problems[key] = problem

    async def _sums(self, session: aiohttp.ClientSession, scraped: Scraped, url: str) -> Sums:
        """Ask one address. Raises `Unusable`, and what the client of HTTP raises."""
        where = _shown(url)
        async with self._turns:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    body = await _read(session, url)
            except TimeoutError:
                raise Unusable(f"{where}: no whole answer within {ANSWER_SECONDS:.0f} s") from None
            except Unusable as problem:
                raise Unusable(f"{where}: {problem}") from None
        try:
            # A large answer takes a moment, in which others are answered.
            return await asyncio.to_thread(sums_of, body, scraped.metrics, scraped.labels)
        except Unusable as problem:
            raise Unusable(f"{where}: {problem}") from None


async def _read(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url, allow_redirects=False, headers=_HEADERS) as answer:
        if answer.status != HTTPStatus.OK:
            raise Unusable(f"the answer is {answer.status}; redirections are not followed")
        if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Unusable("its answer is compressed, which was not asked for")
        if answer.content_type == _OPEN_METRICS:
            raise Unusable("its answer is OpenMetrics, and the text format of Prometheus was asked for")
        body = bytearray()
        async for part in answer.content.iter_any():
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise Unusable(f"its answer has more than {BODY_BYTES_MAX} bytes")
    return bytes(body)


def _shown(url: str) -> str:
    """Give an address without its query, which may have a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
