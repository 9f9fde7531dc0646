"""A deployment registers with its caches and passes their reports to placement.

These tests need no server.
"""

import asyncio
from typing import Any

import pytest
from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from api_types.messages.caches import CacheChanged
from api_types.messages.delivery import SignalBatch, SignalBatchResult
from tests.api_types.builders import a_deployment, merged
from tests.workflows.environment.serverless import Serverless
from tests.workflows.model_deployment.exchange import a_controller
from workflows.model_deployment.cache import DeploymentCache, cache_view
from workflows.model_deployment.state import DeploymentState

WEIGHTS, ADAPTER = "modelcache/ml/weights", "modelcache/ml/adapter"
REPORT = CacheChanged(
    cache="weights",
    uid="c",
    sequence=5,
    match_labels={"tier": "a"},
    phases={"us": "Ready", "eu": "Staging"},
)
VIEW = {
    "name": "weights",
    "state": "Present",
    "manifest": {
        "metadata": {"name": "weights"},
        "spec": {"clusterSelector": {"matchLabels": {"tier": "a"}}},
        "status": {
            "clusters": [
                {"name": "eu", "phase": "Staging"},
                {"name": "us", "phase": "Ready"},
            ]
        },
    },
}
DELETING = merged(VIEW, {"manifest": {"metadata": {"deletionTimestamp": "set"}}})


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (REPORT, VIEW),
        (REPORT.model_copy(update={"deleting": True}), DELETING),
        (None, {"name": "weights", "state": "Unresolved"}),
        (
            REPORT.model_copy(update={"cache": "x"}),
            {"name": "weights", "state": "Unresolved"},
        ),
    ],
    ids=["reported", "being deleted", "silent", "a report of another cache"],
)
def test_placement_uses_the_report_of_a_cache(
    report: CacheChanged | None, expected: dict[str, Any]
) -> None:
    assert cache_view("weights", report) == expected


async def _wait_for_ever(*_: Any, **__: Any) -> None:
    await asyncio.Event().wait()


class Following:
    """A deployment that references a cache, and the running caches."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *running: str, cache: str = "weights"
    ) -> None:
        Serverless(monkeypatch, "modeldeployment/ml/qwen")
        self.running, self.signalled = list(running), list[str]()
        monkeypatch.setattr("workflows.entity.calls.sending.call_entities", self._call)
        monkeypatch.setattr(workflow, "execute_activity_method", _wait_for_ever)
        self.controller = a_controller()
        self.context = self.controller._context
        self.state: DeploymentState = self.context.state
        self.cache = DeploymentCache(self.context)
        self.reference(cache)
        self.state.cache = REPORT if cache else None

    async def _call(
        self, method: Any, batch: SignalBatch, *_: Any, **__: Any
    ) -> SignalBatchResult:
        assert method is EntityClient.signal_many
        ids = [signal.workflow_id for signal in batch.signals]
        self.signalled += ids
        return SignalBatchResult(
            missing=[each for each in ids if each not in self.running]
        )

    def reference(self, cache: str, *adapters: str) -> None:
        """Change the template to reference this cache and these adapter caches."""
        spec = a_deployment()["spec"]
        template = dict(spec["template"]["spec"])
        if cache:
            template["modelCacheRef"] = {"name": cache}
        if adapters:
            named = [
                {"name": each, "modelCacheRef": {"name": each}} for each in adapters
            ]
            (engine,) = template["engines"]
            template["engines"] = [{**engine, "adapters": named}]
        self.state.spec = {"replicas": 1, **spec, "template": {"spec": template}}


async def test_a_deployment_registers_once_with_an_existing_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    following = Following(monkeypatch, WEIGHTS)
    for _ in range(2):
        assert await following.cache.follow() == VIEW
    assert (following.signalled, following.state.cache_registered) == (
        [WEIGHTS],
        "weights",
    )


async def test_a_missing_cache_is_absent_until_it_announces_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    following = Following(monkeypatch)
    absent = {"name": "weights", "state": "Absent"}
    for _ in range(2):
        assert await following.cache.follow() == absent
    assert (following.signalled, following.state.cache_registered) == ([WEIGHTS], "")
    following.running = [WEIGHTS]
    following.cache.record_change(CacheChanged(cache="weights"))
    assert await following.cache.follow() == VIEW
    assert following.signalled == [WEIGHTS, WEIGHTS]


async def test_a_template_without_a_cache_follows_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    following = Following(monkeypatch, cache="")
    assert (await following.cache.follow(), following.signalled) == ({}, [])


async def test_a_new_cache_is_registered_with_and_the_report_of_the_first_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    following = Following(monkeypatch, WEIGHTS, "modelcache/ml/other")
    await following.cache.follow()
    following.reference("other")
    following.state.deletion_timestamp = (
        "2026-01-01T00:00:00Z"  # skips the wait for the first report
    )
    assert await following.cache.follow() == {"name": "other", "state": "Unresolved"}
    assert following.signalled == [WEIGHTS, "modelcache/ml/other"]
    assert (following.state.cache, following.state.cache_registered) == (None, "other")


async def test_adapter_caches_are_followed_while_the_template_references_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    following = Following(monkeypatch, WEIGHTS, ADAPTER)
    following.reference("weights", "adapter")
    following.state.deletion_timestamp = (
        "2026-01-01T00:00:00Z"  # skips the wait for the first report
    )
    assert await following.cache.follow() == {"name": "adapter", "state": "Unresolved"}
    report = REPORT.model_copy(update={"cache": "adapter", "phases": {"eu": "Ready"}})
    following.cache.record_change(report)
    both = await following.cache.follow()
    assert both["manifest"]["status"]["clusters"] == [
        {"name": "eu", "phase": "Staging"}
    ]
    assert following.signalled == [WEIGHTS, ADAPTER]
    assert following.cache.followed.registered_at() == [WEIGHTS, ADAPTER]
    following.reference("weights")
    assert await following.cache.follow() == VIEW
    assert following.state.adapters == {}
    # The deployment registers again with a cache that returns. At first that cache does
    # not exist.
    following.running = [WEIGHTS]
    following.reference("weights", "adapter")
    assert await following.cache.follow() == {"name": "adapter", "state": "Absent"}
    following.reference("weights")
    await following.cache.follow()
    following.running.append(ADAPTER)
    following.reference("weights", "adapter")
    assert await following.cache.follow() == {"name": "adapter", "state": "Unresolved"}


NEWER, OLDER = (REPORT.model_copy(update={"sequence": number}) for number in (6, 4))
ANOTHER = REPORT.model_copy(update={"uid": "d", "sequence": 1})


@pytest.mark.parametrize(
    ("known", "message", "kept", "registered"),
    [
        (None, REPORT, REPORT, "weights"),
        (REPORT, NEWER, NEWER, "weights"),
        (NEWER, NEWER.model_copy(update={"deleting": True}), "the message", "weights"),
        (REPORT, OLDER, REPORT, "weights"),
        (REPORT, ANOTHER, ANOTHER, "weights"),
        (REPORT, CacheChanged(cache="weights"), REPORT, ""),
        (REPORT, CacheChanged(cache="weights", uid="c", present=False), None, ""),
        (REPORT, CacheChanged(cache="weights", present=False), None, ""),
        (REPORT, ANOTHER.model_copy(update={"cache": "x"}), REPORT, "weights"),
    ],
    ids=[
        "the first",
        "a newer one",
        "one of the same number",
        "an older one",
        "of a cache that was created again",
        "a cache was created",
        "the cache is gone",
        "there is none",
        "of a cache that nothing references",
    ],
)
def test_the_newest_report_of_a_cache_is_kept(
    monkeypatch: pytest.MonkeyPatch,
    known: CacheChanged | None,
    message: CacheChanged,
    kept: CacheChanged | str | None,
    registered: str,
) -> None:
    following = Following(monkeypatch)
    following.state.cache, following.state.cache_registered = known, "weights"
    following.context.queued = False
    following.cache.record_change(message)
    assert following.state.cache == (message if kept == "the message" else kept)
    assert following.state.cache_registered == registered
    assert following.context.queued == (message.cache == "weights")
