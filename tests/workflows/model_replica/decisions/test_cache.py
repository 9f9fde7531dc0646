"""The claims, problems and status that a replica derives from its spec and its caches' reports."""

from typing import Any

import pytest

from api_types.messages.caches import CacheReport
from api_types.resources.status import Condition
from tests.workflows.model_replica.builders import a_replica
from workflows.model_replica.decisions.cache import (
    cache_name,
    cache_problem,
    cache_status,
    mounted_claims,
)
from workflows.model_replica.state import (
    ApplyInputs,
    ModelReplicaState,
    ReplicaAdapterCache,
)

READY = Condition(
    type="Ready", status="True", reason="Available", last_transition_time="t"
)
SPEC: dict[str, Any] = {
    "modelCacheRef": {"name": "weights"},
    "engines": [{"name": "main", "adapters": [{"modelCacheRef": {"name": "style"}}]}],
}
REPORT = CacheReport(cache="weights", uid="c", sequence=1, cluster="eu")


def applied(claim: str = "", **adapters: str) -> ApplyInputs:
    return ApplyInputs(claim, {}, adapters or None)


@pytest.mark.parametrize(
    "adapter", ["", "style"], ids=["of the model", "of an adapter"]
)
@pytest.mark.parametrize(
    ("mounted", "last", "is_ready", "claims"),
    [
        ([], "", False, []),
        ([], "b", False, ["b"]),
        (["a", "b"], "b", False, ["a", "b"]),
        (["b", "a"], "b", False, ["a", "b"]),
        (["a", "b"], "b", True, ["b"]),
        (["a"], "", False, ["a"]),
        (["a"], None, False, ["a"]),
        (["a"], "", True, []),
    ],
    ids=[
        "none",
        "the first",
        "a change is rolled out",
        "and the older one is named last",
        "it is rolled out",
        "none is applied",
        "nothing is applied",
        "none, and it is rolled out",
    ],
)
def test_pods_may_mount_the_applied_claim_and_older_ones_until_they_are_replaced(
    adapter: str,
    mounted: list[str],
    last: str | None,
    is_ready: bool,
    claims: list[str],
) -> None:
    state = a_replica(conditions=[READY] if is_ready else [])
    state.adapters["style"] = ReplicaAdapterCache()
    (state.adapters["style"] if adapter else state).cache_mounted = mounted
    inputs = (
        applied("of the model", style=last or "")
        if adapter
        else applied(last or "", style="x")
    )
    state.applied_inputs = None if last is None else inputs
    assert mounted_claims(state, adapter) == claims


def test_an_adapter_that_was_not_applied_has_no_claim() -> None:
    state = a_replica()
    state.adapters["style"] = ReplicaAdapterCache(cache_mounted=["a"])
    state.applied_inputs = applied("of the model")
    assert mounted_claims(state, "style") == ["a"]


WEIGHTS = "ModelCache ml/weights"
SILENT = "does not exist, or has not answered yet; engines on eu wait for it"


def with_caches(spec: dict[str, Any] | None = None, **fields: Any) -> ModelReplicaState:
    return a_replica(spec=SPEC if spec is None else spec, **fields)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (with_caches(), f"{WEIGHTS} {SILENT}; ModelCache ml/style {SILENT}"),
        (with_caches(cache_claim="claim"), f"ModelCache ml/style {SILENT}"),
        (
            with_caches(
                adapters={"style": ReplicaAdapterCache(cache_claim="claim")},
                cache=REPORT,
            ),
            f"{WEIGHTS} is not staged on eu",
        ),
        (
            with_caches(
                cache_claim="claim",
                adapters={
                    "style": ReplicaAdapterCache(
                        cache=REPORT.model_copy(update={"phase": "Failed"})
                    )
                },
            ),
            "ModelCache ml/style is Failed on eu",
        ),
        (
            with_caches(
                {"modelCacheRef": {"name": "weights"}},
                cache=REPORT.model_copy(
                    update={"phase": "Hydrating", "message": "pulls"}
                ),
            ),
            f"{WEIGHTS} is Hydrating on eu: pulls",
        ),
    ],
    ids=[
        "nothing answers",
        "the adapter's",
        "the model's",
        "how far it is",
        "with its message",
    ],
)
def test_the_awaited_cache_is_named_with_its_progress(
    state: ModelReplicaState, problem: str
) -> None:
    assert cache_problem(state) == problem


STAGED = REPORT.model_copy(update={"artifact_key": "key", "phase": "Ready"})


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (with_caches({}, cache=STAGED), {}),
        (with_caches(), {"cache": {}}),
        (with_caches(cache=REPORT), {"cache": {}}),
        (
            with_caches(cache=STAGED, cache_claim="claim"),
            {"cache": {"claimName": "claim", "artefactKey": "key", "phase": "Ready"}},
        ),
    ],
    ids=["without a cache", "it has not answered", "nothing is staged", "staged"],
)
def test_the_status_shows_the_mounted_weights(
    state: ModelReplicaState, shown: dict[str, Any]
) -> None:
    assert cache_status(state) == shown
    assert cache_name(state) == ("weights" if shown else "")
