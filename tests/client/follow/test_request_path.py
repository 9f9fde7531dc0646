"""The request paths that `modelplane describe ms/NAME` draws: golden text for each
broken part.

After an intended change: `UPDATE_GOLDEN=1 .venv/bin/pytest
tests/client/follow/test_request_path.py && git diff tests/golden/requests`.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import AsyncMock

import pytest

from activities.render.services.route_plan import plan_backends
from api_types.messages.gateway_work import (
    AppliedRoute,
    BackendShare,
    ObservedServiceRoute,
)
from api_types.messages.routing import (
    EntryEndpoints,
    GatewayChanged,
    SelectedEndpoint,
    ServiceEndpoints,
)
from api_types.resources.kinds import BY_KIND, KindInfo
from client.follow.request_path import request_path
from fleet_client.errors import NoAnswer
from fleet_client.refs.seen import ListedObject, not_found
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.temporal.control_plane import ControlPlane
from workflows.entity.conditions import Verdict
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_service import decisions, status, verdicts
from workflows.model_service.state import ServiceState

GOLDEN = Path(__file__).parents[2] / "golden" / "requests"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEAM, ROUTE = "ml-team", "ms-qwen-8bffad0a"
DEPLOYMENT = "modelplane.ai/deployment"
READY = {"type": "Ready", "status": "True", "reason": "Available"}
LONG = "qwen-with-a-long-name-that-nobody-would-type-300fb773"


def unready(reason: str, message: str) -> dict[str, Any]:
    return {"type": "Ready", "status": "False", "reason": reason, "message": message}


def an_object(
    ready: Mapping[str, Any] = READY,
    *,
    labels: Mapping[str, str] | None = None,
    spec: Any = None,
    **status: Any,
) -> Tree:
    return {
        "metadata": {"labels": dict(labels or {})},
        "spec": spec or {},
        "status": {"conditions": [dict(ready)], **status},
    }


def of_replica(name: str, cluster: str = "eu") -> SelectedEndpoint:
    return SelectedEndpoint(
        name=name,
        url=f"http://10.245.0.1/{TEAM}/{name}/v1",
        backend=f"me-{name}",
        cluster=cluster,
    )


def external(name: str, url: str = "https://api.together.xyz/v1") -> SelectedEndpoint:
    return SelectedEndpoint(name=name, url=url, backend=f"me-{name}")


def a_deployment(replicas: int, *, ready: int = 0, **labels: str) -> Tree:
    spec = {"replicas": replicas, "template": {"metadata": {"labels": labels}}}
    return an_object(
        unready("Creating", "0 of some"),
        spec=spec,
        replicas={"total": ready, "ready": ready},
    )


class Entry(NamedTuple):
    """An entry of a service: its selector, and its status."""

    name: str
    labels: dict[str, str]
    selected: EntryEndpoints
    weight: int = 100
    priority: int = 0


def an_entry(
    name: str, *endpoints: SelectedEndpoint, matched: int = 0, **fields: Any
) -> Entry:
    standby = bool(fields.pop("standby", False))
    found = EntryEndpoints(
        matched=matched or len(endpoints),
        ready=len(endpoints),
        standby=standby,
        endpoints=[] if standby else list(endpoints),
    )
    return Entry(name, fields.pop("labels", {DEPLOYMENT: name}), found, **fields)


def a_service(
    *entries: Entry,
    address: str = "10.245.255.1",
    seen: ObservedServiceRoute | None = None,
) -> Tree:
    """A service as its workflow shows it.

    Its route has all endpoints that can be routed.
    """
    spec = {
        "endpoints": [
            {
                "name": each.name,
                "weight": each.weight,
                "priority": each.priority,
                "selector": {"matchLabels": each.labels},
            }
            for each in entries
        ]
    }
    state = ServiceState(
        spec=spec,
        gateway=FollowedGateway(
            known=GatewayChanged(uid="g", sequence=1, connected=True, address=address)
        ),
    )
    state.selected = ServiceEndpoints(
        uid="", sequence=0, version=1, entries=[each.selected for each in entries]
    )
    wanted = decisions.wanted_route(state, TEAM, "qwen")
    if wanted:
        shares = [
            BackendShare(endpoint=each.endpoint.name, weight=each.weight)
            for each in plan_backends(wanted.route.entries)
        ]
        state.applied = AppliedRoute(name=ROUTE, generation=1, backends=shares)
        state.observed = seen or ObservedServiceRoute(
            present=True, generation=1, accepted=True, resolved=True
        )
    conditions = [
        _condition("EndpointsResolved", verdicts.endpoints_resolved(state)),
        _condition("RoutingReady", verdicts.routing_ready(state, NOW)),
    ]
    return {
        "spec": spec,
        "status": {
            **status.status_of(state, TEAM, "qwen"),
            "conditions": conditions,
        },
    }


def without_entries(service: Tree) -> Tree:
    """The same service from a worker that does not report the entry of an endpoint."""
    for endpoint in service["status"]["endpoints"]:
        del endpoint["entry"]
    return service


def _condition(condition_type: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "type": condition_type,
        "status": verdict.status,
        "reason": verdict.reason,
        "message": verdict.message,
    }


GATEWAY = an_object(address="10.245.255.1")
CLUSTER = an_object(gateway={"address": "10.245.0.1"})


class Story(NamedTuple):
    """A service, and the other objects by kind and name."""

    service: Tree
    objects: dict[str, dict[str, Tree]]
    width: int = 0


def stories() -> dict[str, Story]:
    one, two, next_ = (
        of_replica("qwen-300fb773"),
        of_replica("qwen-51c0aa21", "us"),
        of_replica("qwen-next-9d1e77a0"),
    )
    healthy = {
        "InferenceGateway": {"default": GATEWAY},
        "InferenceCluster": {"eu": CLUSTER, "us": CLUSTER},
    }
    replicas = {one.name: an_object(), two.name: an_object()}
    stable, canary = (
        an_entry("stable", one, two, weight=90),
        an_entry("canary", next_, weight=10),
    )
    starting = an_object(
        unready("ModelStarting", "engine main: 0 of 1 pods ready"),
        labels={DEPLOYMENT: "qwen"},
        spec={"clusterName": "eu"},
    )
    bad_url = unready(
        "InvalidURL",
        'Invalid spec.url: http://localhost:8000: "localhost" is not a fully qualified host name',
    )
    bad = an_object(
        bad_url, labels={"tier": "external"}, spec={"url": "http://localhost:8000"}
    )
    pending = an_object(
        unready("WaitingForBackend", "the backend is not applied yet"),
        labels={"tier": "external"},
        spec={"url": "https://api.groq.com/v1"},
    )
    together = external("together")
    by_tier = {"tier": "external"}
    lost = an_object(
        unready(
            "Unavailable",
            "Unreachable: no answer since 2026-01-01T00:00:00Z: connection\nrefused",
        )
    )
    no_address = an_object(
        unready("Creating", "Installing: S4 address: the Gateway has no address yet")
    )
    long = of_replica(LONG)
    return {
        "all-well": Story(
            a_service(an_entry("qwen", one, two)), {**healthy, "ModelReplica": replicas}
        ),
        "canary": Story(
            a_service(stable, canary),
            {**healthy, "ModelReplica": {**replicas, next_.name: an_object()}},
        ),
        "standby": Story(
            a_service(
                an_entry("qwen", one),
                an_entry(
                    "spill-over", together, labels=by_tier, priority=1, standby=True
                ),
            ),
            {
                **healthy,
                "ModelReplica": replicas,
                "ModelEndpoint": {"together": an_object(labels=by_tier)},
            },
        ),
        "spilled-over": Story(
            a_service(
                an_entry("qwen", matched=1),
                an_entry("spill-over", together, labels=by_tier, priority=1),
            ),
            {
                **healthy,
                "ModelReplica": {one.name: starting},
                "ModelEndpoint": {"together": an_object(labels=by_tier)},
            },
        ),
        "gateway-without-address": Story(
            a_service(an_entry("qwen", one), address=""),
            {
                **healthy,
                "InferenceGateway": {"default": an_object()},
                "ModelReplica": replicas,
            },
        ),
        "no-gateway": Story(
            a_service(an_entry("qwen", one), address=""),
            {"InferenceCluster": {"eu": CLUSTER}, "ModelReplica": replicas},
        ),
        "nothing-matched": Story(
            a_service(an_entry("qwen")),
            {**healthy, "ModelReplica": {"other": an_object(labels={DEPLOYMENT: "x"})}},
        ),
        "deployment-of-none": Story(
            a_service(an_entry("qwen")),
            {
                **healthy,
                "ModelDeployment": {"qwen": a_deployment(0), "x": a_deployment(2)},
            },
        ),
        "deployment-without-room": Story(
            a_service(an_entry("qwen")),
            {**healthy, "ModelDeployment": {"qwen": a_deployment(3)}},
        ),
        "deployment-elsewhere": Story(
            a_service(
                an_entry(
                    "qwen", labels={DEPLOYMENT: "qwen", "modelplane.ai/cluster": "us"}
                )
            ),
            {
                **healthy,
                "ModelDeployment": {"qwen": a_deployment(1, ready=1)},
                "ModelReplica": {
                    one.name: an_object(
                        labels={DEPLOYMENT: "qwen", "modelplane.ai/cluster": "eu"}
                    )
                },
            },
        ),
        "deployment-by-label": Story(
            a_service(an_entry("gold", labels={"tier": "gold"})),
            {
                **healthy,
                "ModelDeployment": {
                    "a": a_deployment(0, tier="gold"),
                    "b": a_deployment(0, tier="silver"),
                },
            },
        ),
        "any-deployment": Story(
            a_service(an_entry("us", labels={"modelplane.ai/cluster": "us"})),
            {**healthy, "ModelDeployment": {"qwen": a_deployment(0)}},
        ),
        "replica-starts": Story(
            a_service(an_entry("qwen")),
            {**healthy, "ModelReplica": {one.name: starting}},
        ),
        "endpoint-waits": Story(
            a_service(an_entry("external", together, matched=2, labels=by_tier)),
            {
                **healthy,
                "ModelEndpoint": {
                    "together": an_object(labels=by_tier),
                    "groq": pending,
                },
            },
        ),
        "bad-url": Story(
            a_service(an_entry("external", labels=by_tier)),
            {**healthy, "ModelEndpoint": {"local": bad}},
        ),
        "cluster-without-address": Story(
            a_service(an_entry("qwen")),
            {
                **healthy,
                "InferenceCluster": {"eu": no_address},
                "ModelReplica": {one.name: starting},
            },
        ),
        "cluster-lost": Story(
            a_service(an_entry("qwen", one, two)),
            {
                **healthy,
                "InferenceCluster": {"eu": lost, "us": CLUSTER},
                "ModelReplica": replicas,
            },
        ),
        "route-refused": Story(
            a_service(
                an_entry("qwen", one),
                seen=ObservedServiceRoute(
                    present=True, generation=1, message="no listener for it"
                ),
            ),
            {**healthy, "ModelReplica": replicas},
        ),
        "many-wait": Story(
            a_service(an_entry("external", matched=9, labels=by_tier)),
            {**healthy, "ModelEndpoint": {f"e-{at}": pending for at in range(9)}},
        ),
        "older-worker": Story(
            without_entries(a_service(stable, canary)),
            {**healthy, "ModelReplica": {**replicas, next_.name: an_object()}},
        ),
        "same-labels": Story(
            a_service(an_entry("same", one), an_entry("same")),
            {
                **healthy,
                "ModelReplica": {one.name: an_object(labels={DEPLOYMENT: "same"})},
            },
        ),
        "no-worker": Story(a_service(an_entry("qwen", one)), {}),
        "narrow": Story(
            a_service(an_entry("stable", long), an_entry("external", labels=by_tier)),
            {
                **healthy,
                "ModelReplica": {LONG: an_object()},
                "ModelEndpoint": {"local": bad},
            },
            width=72,
        ),
        "very-narrow": Story(
            a_service(an_entry("stable", long)),
            {**healthy, "ModelReplica": {LONG: an_object()}},
            width=20,
        ),
    }


def a_plane(story: Story, *, answers: bool) -> Any:
    async def describe(target: Target) -> Tree:
        if not answers:
            raise NoAnswer(
                f"{target.title} did not answer within 3 s",
                next_step="is a worker running?",
            )
        found = story.objects.get(target.kind.kind, {}).get(target.name)
        if found is None:
            raise not_found(target)
        return found

    async def listed(kind: KindInfo, namespace: str) -> list[ListedObject]:
        return [
            ListedObject(Target.of(kind, namespace, name), tree)
            for name, tree in story.objects.get(kind.kind, {}).items()
        ]

    return AsyncMock(
        ControlPlane, **{"describe.side_effect": describe, "list.side_effect": listed}
    )


@pytest.mark.parametrize("name", stories())
async def test_the_path_of_a_request_is_drawn_with_its_broken_parts(name: str) -> None:
    story = stories()[name]
    plane = a_plane(story, answers=name != "no-worker")
    lines = await request_path(
        plane,
        Target.of(BY_KIND["ModelService"], TEAM, "qwen"),
        story.service,
        story.width,
    )
    drawn, golden = "\n".join(lines) + "\n", GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(drawn)
    assert drawn == golden.read_text()


def test_every_drawing_is_of_a_story() -> None:
    assert {file.stem for file in GOLDEN.glob("*")} == set(stories())


RETRIES = {"type": "RetriesReady", "status": "True", "reason": "MiddlewareApplied"}
NO_RETRIES = {
    "type": "RetriesReady",
    "status": "False",
    "reason": "MiddlewareUnavailable",
    "message": "do this",
}


@pytest.mark.parametrize(
    ("retries", "condition", "want"),
    [
        (None, None, []),
        (
            {"attempts": 1},
            RETRIES,
            ["    ✓ requests are retried up to 1 time if nothing was sent"],
        ),
        (
            {"attempts": 2, "codes": [429, 503]},
            NO_RETRIES,
            [
                (
                    "    ✗ requests are not retried up to 2 times if nothing was "
                    "sent, or after 429, 503 (MiddlewareUnavailable: do this)"
                )
            ],
        ),
    ],
)
async def test_the_path_names_the_requests_that_are_retried(
    retries: Any, condition: Any, want: list[str]
) -> None:
    spec = {"endpoints": [], **({"retries": retries} if retries else {})}
    service = {"spec": spec, "status": {"conditions": [condition] if condition else []}}
    plane = AsyncMock(ControlPlane, **{"describe.return_value": {"status": {}}})
    lines = await request_path(
        plane, Target.of(BY_KIND["ModelService"], "ml", "chat"), service
    )
    assert [line for line in lines if "retried" in line] == want


@pytest.mark.parametrize(
    ("timeouts", "status", "want"),
    [
        (None, "", []),
        ({"request": "300s"}, "True", ["    ✓ the gateway ends a request after 300s"]),
        (
            {"backendRequest": "60s"},
            "True",
            ["    ✓ the gateway ends an attempt at an endpoint after 60s"],
        ),
        (
            {"request": "300s", "backendRequest": "60s"},
            "False",
            [
                (
                    "    ✗ the gateway does not end a request after 300s, or an "
                    "attempt at an endpoint after 60s (TimeoutsUnsupported: do this)"
                )
            ],
        ),
    ],
)
async def test_the_path_shows_the_timeouts_of_the_gateway(
    timeouts: Any, status: str, want: list[str]
) -> None:
    said = {
        "type": "TimeoutsReady",
        "status": status,
        "reason": "TimeoutsUnsupported",
        "message": "do this",
    }
    spec = {"endpoints": [], **({"timeouts": timeouts} if timeouts else {})}
    service = {"spec": spec, "status": {"conditions": [said] if status else []}}
    plane = AsyncMock(ControlPlane, **{"describe.return_value": {"status": {}}})
    lines = await request_path(
        plane, Target.of(BY_KIND["ModelService"], "ml", "chat"), service
    )
    assert [
        line
        for line in lines
        if "the gateway ends" in line or "the gateway does not end" in line
    ] == want
