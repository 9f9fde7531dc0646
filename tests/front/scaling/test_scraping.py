"""Scraped metrics come only from addresses in the file, are complete, and expire."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from front.access.files import BadAccessFile, WatchedFile, load
from front.configuration.scaling import scraper_of
from front.scaling import scraping
from front.scaling.numbers import Numbers, Told
from front.scaling.scraping import (
    Scraped,
    ScrapeFile,
    Scraper,
    UnusableMetrics,
    sums_of,
)
from front.serving.errors import RejectedRequest
from front.store.projection import ObjectKey, Projection
from testbed.cluster.pki import Authority
from tests.front.scaling.endpoint import PAGE, RUNNING, WAITING, Endpoint, Handler
from tests.front.scaling.scaling_under_test import (
    AGE_MAX,
    NOW,
    Json,
    ScalingUnderTest,
    a_deployment,
)
from tests.workflows.environment import harness

# Scrapers of these tests run every hundredth of a second.
eventually = partial(harness.eventually, longest_pause=0.02)
CHAT, CODE = (
    ObjectKey("ModelDeployment", "a", "chat"),
    ObjectKey("ModelDeployment", "a", "code"),
)
BOTH = {"queueDepth": WAITING, "runningRequests": RUNNING}


def entry(*urls: str, name: str = "chat", **more: Any) -> Json:
    return {"namespace": "a", "name": name, "urls": list(urls), **(more or BOTH)}


def numbers_of(
    told: Told, key: ObjectKey = CHAT, uid: str = "chat"
) -> dict[str, float] | None:
    """Return the known metrics; None if an autoscaler would get an error."""
    try:
        return told.read(key, uid).values
    except RejectedRequest:
        return None


class Scraping:
    """A scraper with a file, for the deployments chat and code."""

    def __init__(self, served: ScalingUnderTest) -> None:
        self.told, self.projection, self.file = (
            served.told,
            served.projection,
            served.folder / "scrape.yaml",
        )

    def write(self, *entries: Json) -> None:
        self.file.write_text(yaml.safe_dump({"deployments": list(entries)}))

    @asynccontextmanager
    async def running(
        self, *entries: Json, interval: float = 0.01, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[None]:
        self.write(*entries)
        scraper = Scraper(
            WatchedFile(self.file, ScrapeFile),
            self.told,
            self.projection,
            interval,
            tls,
        )
        task = asyncio.create_task(scraper.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not scraper._tasks

    async def known(self, key: ObjectKey = CHAT) -> dict[str, float] | None:
        return numbers_of(self.told, key, key.name)


@pytest.fixture
def scraping_(served: ScalingUnderTest) -> Scraping:
    return Scraping(served)


@pytest.fixture
async def endpoint() -> AsyncIterator[tuple[Endpoint, str]]:
    found = Endpoint()
    async with found.served() as url:
        yield found, url


# Responses


def test_samples_with_the_metric_and_labels_are_summed() -> None:
    assert sums_of(PAGE.encode(), BOTH, {}).values == {
        "queueDepth": 105.0,
        "runningRequests": 15.0,
    }
    assert sums_of(
        PAGE.encode(), {"queueDepth": WAITING}, {"model_name": "qwen"}
    ).values == {"queueDepth": 5.0}
    assert sums_of(
        PAGE.encode(), {"queueDepth": WAITING}, {"model_name": 'o{t"h,er'}
    ).values == {"queueDepth": 100.0}
    assert sums_of(
        b"q 1 1000\nq{} 2 999000\nq\t3\n", {"queueDepth": "q"}, {}
    ).values == {"queueDepth": 6.0}


def test_a_sum_is_as_old_as_its_oldest_sample() -> None:
    assert sums_of(b"q 1", {"queueDepth": "q"}, {}).observed is None
    observed = sums_of(
        f"q 1 {int(NOW.timestamp() * 1000)}\nq 2 {int(NOW.timestamp() * 1000) - 5000}".encode(),
        {"queueDepth": "q"},
        {},
    )
    assert observed.observed == NOW - timedelta(seconds=5)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "no sample of q"),
        (b"q_total 1\nqq 1\n# q 1", "no sample of q"),
        (b"q\xff 1", "not UTF-8 text"),
        (b"q NaN", "not a number between"),
        (b"q +Inf", "not a number between"),
        (b"q -1", "not a number between"),
        (b"q 1e12\nq 1", "not a number between"),
        (b"q ", "malformed sample of q"),
        (b"q one", "malformed sample of q"),
        (b'q{a="1" 1', "malformed sample of q"),
        (b"q{a=1} 1", "malformed sample of q"),
        (b"q{" + b"{" * 5000 + b"} 1", "malformed sample of q"),
        (b"q 1 9" + b"0" * 300, "an invalid time"),
        (b"q 1\n" * (scraping.SAMPLES_MAX + 1), "more than 1000 samples"),
    ],
)
def test_an_unusable_response_gives_no_metric(body: bytes, problem: str) -> None:
    with pytest.raises(UnusableMetrics, match=problem):
        sums_of(body, {"queueDepth": "q"}, {})


def test_a_response_with_one_of_two_metrics_is_unusable() -> None:
    with pytest.raises(UnusableMetrics, match="no sample of r"):
        sums_of(b"q 1", {"queueDepth": "q", "runningRequests": "r"}, {})
    with pytest.raises(UnusableMetrics, match="no sample of q"):
        sums_of(b'q{a="2"} 1', {"queueDepth": "q"}, {"a": "1"})


# Addresses


async def test_an_autoscaler_reads_the_sum_over_all_addresses(
    scraping_: Scraping, endpoint: tuple[Endpoint, str]
) -> None:
    url = endpoint[1]
    async with scraping_.running(
        entry(url, f"{url}?replica=1"),
        entry(url, name="code", queueDepth=WAITING, labels={"engine": "1"}),
    ):
        await eventually(
            scraping_.known,
            lambda found: found == {"queueDepth": 210, "runningRequests": 30},
            what="the numbers",
        )
        await eventually(
            lambda: scraping_.known(CODE),
            lambda found: found == {"queueDepth": 2},
            what="those of the other",
        )
    assert {
        (
            request.method,
            request.headers.get("Cookie"),
            request.headers.get("Authorization"),
        )
        for request in endpoint[0].asked
    } == {("GET", None, None)}


async def test_no_partial_sum_is_stored_if_one_address_fails(
    scraping_: Scraping, endpoint: tuple[Endpoint, str]
) -> None:
    ours, url = endpoint

    async def one_fails(request: web.Request) -> web.StreamResponse:
        return (
            web.Response(status=500)
            if request.query_string
            else await ours.page(request)
        )

    ours.answer = one_fails
    async with scraping_.running(
        entry(url, f"{url}?replica=1"), entry(url, name="code")
    ):
        await eventually(
            lambda: scraping_.known(CODE), bool, what="the numbers of the other"
        )
        assert await scraping_.known() is None
        ours.answer = ours.page
        await eventually(scraping_.known, bool, what="the numbers")


async def redirected(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/elsewhere")


async def packed(_request: web.Request) -> web.StreamResponse:
    return web.Response(
        body=gzip.compress(PAGE.encode()), headers={"Content-Encoding": "gzip"}
    )


async def open_metrics(_request: web.Request) -> web.StreamResponse:
    return web.Response(
        body=PAGE.encode(),
        headers={
            "Content-Type": "application/openmetrics-text; version=1.0.0; charset=utf-8"
        },
    )


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(f"{WAITING} 1\n".encode() * 4096)


async def slow(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(f"{WAITING} 1\n".encode())
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (redirected, "the HTTP status is 302; redirects are not followed"),
        (packed, "the response is compressed"),
        (open_metrics, "the format OpenMetrics"),
        (endless, f"the response has more than {scraping.BODY_BYTES_MAX} bytes"),
        pytest.param(slow, "no complete response within", marks=pytest.mark.slow),
    ],
)
async def test_an_invalid_response_gives_no_metric_and_is_logged_once(
    scraping_: Scraping,
    endpoint: tuple[Endpoint, str],
    monkeypatch: pytest.MonkeyPatch,
    answer: Handler,
    problem: str,
) -> None:
    ours, url = endpoint
    ours.answer, warned = answer, list[str]()
    monkeypatch.setattr(scraping, "ANSWER_SECONDS", 0.3 if answer is slow else 30.0)
    monkeypatch.setattr(
        scraping.log, "warning", lambda _text, **more: warned.append(more["problem"])
    )

    async def enough() -> bool:
        return len(ours.asked) > 2

    async with scraping_.running(entry(f"{url}?token=secret")):
        await eventually(enough, bool, what="several attempts")
    assert numbers_of(scraping_.told) is None
    assert [
        text for text in warned if problem in text and "secret" not in text
    ] == warned
    assert len(warned) == 1
    assert {request.path for request in ours.asked} == {"/metrics"}


async def test_a_hanging_address_delays_no_other_deployment_and_gets_one_request(
    scraping_: Scraping, endpoint: tuple[Endpoint, str]
) -> None:
    ours, url = endpoint
    go = asyncio.Event()

    async def hangs(request: web.Request) -> web.StreamResponse:
        if request.query_string:
            await go.wait()
        return await ours.page(request)

    ours.answer = hangs

    async def asked() -> int:
        return sum(not request.query_string for request in ours.asked)

    async with scraping_.running(entry(f"{url}?hangs"), entry(url, name="code")):
        await eventually(
            asked, lambda count: count > 3, what="the other to be asked again"
        )
        assert sum(bool(request.query_string) for request in ours.asked) == 1
        go.set()


async def test_metrics_expire_when_the_address_is_gone(
    scraping_: Scraping, served: ScalingUnderTest
) -> None:
    ours = Endpoint()
    async with ours.served() as url, scraping_.running(entry(url)):
        await eventually(scraping_.known, bool, what="the numbers")
    async with scraping_.running(entry(url)):
        served.now += AGE_MAX
        assert await scraping_.known()
        served.now += timedelta(seconds=1)
        assert await scraping_.known() is None


async def test_an_old_sample_gives_no_metric(
    scraping_: Scraping, endpoint: tuple[Endpoint, str]
) -> None:
    ours, url = endpoint
    stamp = int(NOW.timestamp() * 1000)
    ours.text = f"q 1 {stamp - 121_000}\nq 2 {stamp}\n"

    async def asked() -> bool:
        return len(ours.asked) > 2

    async with scraping_.running(entry(url, queueDepth="q")):
        await eventually(asked, bool, what="several attempts")
        assert await scraping_.known() is None
        ours.text = f"q 1 {stamp + 3_600_000}\n"
        await eventually(scraping_.known, bool, what="one with a time ahead")
    assert scraping_.told.read(CHAT, "chat").observed == NOW


async def test_the_latest_of_pushed_and_scraped_metrics_wins(
    scraping_: Scraping, endpoint: tuple[Endpoint, str]
) -> None:
    ours, url = endpoint
    ours.text = f"q 1 {int(NOW.timestamp() * 1000) - 30_000}\n"
    scraping_.told.tell(CHAT, Numbers("chat", NOW, {"queueDepth": 7}))

    async def asked() -> bool:
        return len(ours.asked) > 2

    async with scraping_.running(entry(url, queueDepth="q")):
        await eventually(asked, bool, what="several attempts")
    assert await scraping_.known() == {"queueDepth": 7}


async def test_missing_deployments_are_not_scraped_and_recreated_ones_start_without_metrics(
    scraping_: Scraping, endpoint: tuple[Endpoint, str]
) -> None:
    ours, url = endpoint
    go, asking = asyncio.Event(), asyncio.Event()

    async def held(request: web.Request) -> web.StreamResponse:
        asking.set()
        await go.wait()
        return await ours.page(request)

    ours.answer = held
    async with scraping_.running(
        entry(f"{url}?none", name="none"), entry(url), interval=3600
    ):
        await asking.wait()
        later = a_deployment("chat", uid="later")
        later["metadata"]["resourceVersion"] = "2000"
        scraping_.projection.put(CHAT, later)
        go.set()
        await eventually(scraping_.known, bool, what="the numbers of the former")
        assert numbers_of(scraping_.told, uid="later") is None
    assert [request.query_string for request in ours.asked] == [""]


async def test_the_file_is_reloaded_and_an_invalid_one_changes_nothing(
    scraping_: Scraping, endpoint: tuple[Endpoint, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = list[str]()
    monkeypatch.setattr(
        scraping.log, "error", lambda _text, **more: failed.append(more["problem"])
    )
    async with scraping_.running(entry(endpoint[1])):
        await eventually(scraping_.known, bool, what="the numbers")
        scraping_.file.write_text("deployments: [{name: x}]")

        async def problems() -> list[str]:
            return failed

        await eventually(problems, bool, what="the broken file")
        scraping_.write(entry(endpoint[1], name="code"))
        await eventually(
            lambda: scraping_.known(CODE), bool, what="the numbers of the other"
        )


async def test_a_bug_does_not_end_the_scraping(
    scraping_: Scraping, endpoint: tuple[Endpoint, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = list[str]()
    monkeypatch.setattr(
        scraping.log, "exception", lambda text, **_more: failures.append(text)
    )
    sums, left = scraping.sums_of, [RuntimeError("a defect")]
    refresh, also = WatchedFile.refresh, [RuntimeError("another")]

    def broken(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return sums(*arguments)

    def refreshed(file: WatchedFile[Any]) -> str:
        if also:
            raise also.pop()
        return refresh(file)

    monkeypatch.setattr(scraping, "sums_of", broken)
    monkeypatch.setattr(WatchedFile, "refresh", refreshed)
    async with scraping_.running(entry(endpoint[1])):
        await eventually(scraping_.known, bool, what="the numbers")
    assert failures == ["cannot scrape deployments", "cannot scrape a deployment"]


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_the_certificate_of_an_address_is_verified(
    scraping_: Scraping,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_trusted: bool,
) -> None:
    pki = Authority(tmp_path / "pki")
    pki.ensure()
    pair = pki.pair("apiserver")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    ours, warned = Endpoint(), list[str]()
    monkeypatch.setattr(
        scraping.log, "warning", lambda _text, **more: warned.append(more["problem"])
    )

    async def told() -> list[str]:
        return warned

    trusted = ssl.create_default_context(cafile=str(pki.ca)) if is_trusted else None
    async with ours.served(context) as url, scraping_.running(entry(url), tls=trusted):
        if is_trusted:
            await eventually(scraping_.known, bool, what="the numbers")
        else:
            await eventually(
                told,
                lambda texts: "CERTIFICATE_VERIFY_FAILED" in str(texts),
                what="the refusal",
            )
            assert ours.asked == []
    assert (numbers_of(scraping_.told) is not None) is is_trusted


# File and settings


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/m",
        "file:///etc/passwd",
        "http://user:secret@h/m",
        "http://h/m#f",
        "http:///m",
        "h/m",
        "http://h:99999/m",
        "http://h/\n",
        "http://[/m",
        "",
        "http://h/" + "m" * 2048,
    ],
)
def test_an_invalid_address_is_rejected_without_its_text(
    tmp_path: Path, url: str
) -> None:
    file = tmp_path / "scrape.yaml"
    file.write_text(yaml.safe_dump({"deployments": [entry(url)]}))
    with pytest.raises(BadAccessFile) as refused:
        load(file, ScrapeFile)
    assert "deployments.0.urls.0" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("deployments", "problem"),
    [
        (
            [{"namespace": "a", "name": "chat", "urls": ["http://h/m"]}],
            "one of queueDepth, runningRequests is required",
        ),
        ([entry("http://h/m"), entry("http://i/m")], "a deployment occurs twice"),
        ([entry()], "at least 1 item"),
        ([entry(*[f"http://h/{number}" for number in range(17)])], "at most 16 items"),
        (
            [
                entry(*[f"http://h/{at}" for at in range(16)], name=f"n{number}")
                for number in range(33)
            ],
            "the limit is 512 urls in total, got 528",
        ),
        ([entry("http://h/m", queueDepth="a b")], "match pattern"),
        ([entry("http://h/m", queueDepht="q", **BOTH)], "not permitted"),
    ],
)
def test_an_inconsistent_file_is_rejected(
    tmp_path: Path, deployments: list[Json], problem: str
) -> None:
    file = tmp_path / "scrape.yaml"
    file.write_text(yaml.safe_dump({"deployments": deployments}))
    with pytest.raises(BadAccessFile, match=problem):
        load(file, ScrapeFile)


def test_contradictory_settings_are_rejected_with_the_next_step(
    tmp_path: Path,
) -> None:
    told, projection, file = Told(AGE_MAX), Projection(), tmp_path / "scrape.yaml"
    assert scraper_of(FrontSettings(), told, projection) is None
    file.write_text("{}")
    assert scraper_of(FrontSettings(scrape_file=file), told, projection)
    for settings, part in (
        (FrontSettings(scrape_file=tmp_path / "none"), "front.scrapeFile: "),
        (
            FrontSettings(scrape_file=file, scrape_ca_file=tmp_path / "none"),
            "front.scrapeCaFile: ",
        ),
        (
            FrontSettings(scrape_file=file, scrape_interval=120),
            "front.scrapeInterval is 120, but metrics expire after",
        ),
    ):
        with pytest.raises(Refused) as refused:
            scraper_of(settings, told, projection)
        assert part in refused.value.message
        assert refused.value.next_step


def test_the_file_lists_the_scraped_deployments() -> None:
    scraped = Scraped.model_validate(entry("http://h/m", queueDepth="q"))
    assert (scraped.key, dict(scraped.metrics)) == (CHAT, {"queueDepth": "q"})
