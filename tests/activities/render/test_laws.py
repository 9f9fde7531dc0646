"""Laws that hold for every replica, whatever its names and engines."""

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from activities.render.cache.volumes import render_cache
from activities.render.inputs.facts import CacheInput, ClusterInput, ReplicaInput
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from activities.render.replica import NotRenderable, render_replica
from api_types.pins import apiversions
from tests.activities.render.builders import GPU, a_gang, a_member, an_engine, nothings
from tests.random_cases import random_cases

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
# Names of users: subdomains that are far longer than admission allows, with dots and
# leading digits.
subdomains = st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", fullmatch=True)
namespaces = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
engine_names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


TOPOLOGIES: list[dict[str, Any]] = [
    {},
    {"deviceConstraints": [{"matchAttribute": "a.example/b", "requests": ["gpu"]}]},
    {"computeDomain": {"channels": "All"}},
]
DOMAINS: list[dict[str, Any]] = [
    {
        "domain": {
            "nodeLabel": "rack",
            "mode": mode,
            "exclusive": exclusive,
            "topologyName": name,
        }
    }
    for mode, exclusive, name in (
        ("Required", True, ""),
        ("Required", False, "racks"),
        ("Preferred", False, ""),
    )
]


@st.composite
def engines(draw: st.DrawFn, name: str, phase: str) -> dict[str, Any]:
    """Return one engine of either shape."""
    args = draw(
        st.lists(
            st.sampled_from(
                [
                    "--port=8002",
                    "--block-size",
                    "64",
                    "--model",
                    "x",
                    "--served-model-name=y",
                    "{",
                ]
            ),
            max_size=4,
        )
    )
    env = [
        {"name": key, "value": draw(st.text(max_size=5))}
        for key in draw(
            st.lists(st.sampled_from(["A", "MODELPLANE_RANK"]), unique=True)
        )
    ]
    member: dict[str, Any] = {
        "args": args,
        "env": env,
        "requests": draw(
            st.sampled_from([[GPU], [{"name": "n", "resourceName": "acme/n"}]])
        ),
    }
    fields: dict[str, Any] = {
        "copies": draw(st.integers(1, 64)),
        **({"phase": phase} if phase else {}),
    }
    fields["topology"] = draw(st.sampled_from(TOPOLOGIES))
    if draw(st.booleans()):
        fields["topology"] = {
            **fields["topology"],
            **draw(st.sampled_from([{}, *DOMAINS])),
        }
        return a_gang(
            name, leader=member, worker={"nodes": draw(st.integers(1, 63))}, **fields
        )
    return an_engine(name, a_member(**member), **fields)


@st.composite
def replicas(draw: st.DrawFn) -> ReplicaInput:
    """Return one replica of any topology."""
    apart = draw(st.booleans())
    count = 2 if apart else draw(st.integers(1, 3))
    names = draw(st.lists(engine_names, min_size=count, max_size=count, unique=True))
    phases = ["Prefill", "Decode"] if apart else [""] * count
    spec: dict[str, Any] = {
        "engines": [
            draw(engines(name, phase))
            for name, phase in zip(names, phases, strict=True)
        ]
    }
    if size := draw(st.sampled_from([0, 0, 2, 8])):
        spec["engines"] = [
            {**engine, "dataParallel": {"size": size}} for engine in spec["engines"]
        ]
    if apart:
        spec["serving"] = {"mode": "PrefillDecode"}
    if draw(st.booleans()):
        spec["modelCacheRef"] = {"name": draw(subdomains)}
    return ReplicaInput(
        namespace=draw(namespaces),
        name=draw(subdomains),
        uid="u",
        generation=draw(st.integers(1, 99)),
        deployment=draw(subdomains),
        cluster="eu-1",
        index=0,
        spec=spec,
        cache_claim=draw(st.sampled_from(["", "claim"])),
    )


clusters = st.builds(
    ClusterInput.assumed,
    name=st.just("eu-1"),
    kubernetes_version=st.sampled_from(["1.28", "1.35"]),
    dra_version=st.sampled_from(["", "v1", "v1beta1"]),
    routing=st.sampled_from(["pool", "service"]),
    scheduler_type=st.sampled_from(["none", "kai", "kueue"]),
    mesh_provider=st.sampled_from(["none", "istio"]),
    apis=st.sampled_from(
        [
            sorted(apiversions.STACK),
            sorted({*apiversions.STACK, apiversions.COMPUTE_DOMAIN}),
        ]
    ),
)
choices = st.builds(
    RenderSettings,
    workload_namespace=st.sampled_from(["mirror", "shared"]),
    kai_mode=st.sampled_from(["auto", "explicit"]),
    epp_metrics_auth=st.booleans(),
    tracing_enabled=st.booleans(),
)


def rendered(
    replica: ReplicaInput, cluster: ClusterInput, options: RenderSettings
) -> Rendered | None:
    """Return the objects, or None where the cluster does not support the replica.

    An unsupported replica needs a reason.
    """
    try:
        return render_replica(replica, cluster, options)
    except NotRenderable as raised:
        refusal = raised
    assert refusal.reason
    assert refusal.problems
    return None


def labels_of(value: Any) -> Iterator[str]:
    """Return every label value in a tree, including selectors."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in {"labels", "matchLabels"}:
                yield from inner.values()
            yield from labels_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from labels_of(inner)


@random_cases(60)
@given(replicas(), clusters, choices)
def test_every_render_is_repeatable_json_without_empty_fields(
    replica: ReplicaInput, cluster: ClusterInput, options: RenderSettings
) -> None:
    first, second = (
        rendered(replica, cluster, options),
        rendered(replica, cluster, options),
    )
    if first is None:
        assert second is None
        return
    assert second is not None
    assert first.hash == second.hash
    for item, again in zip(first.objects, second.objects, strict=True):
        text = json.dumps(item.manifest, ensure_ascii=False)
        assert text == json.dumps(again.manifest, ensure_ascii=False)
        assert json.loads(text) == item.manifest
        assert list(nothings(item.manifest, item.key)) == []


@random_cases(60)
@given(replicas(), clusters, choices)
def test_every_name_and_label_is_valid_in_kubernetes(
    replica: ReplicaInput, cluster: ClusterInput, options: RenderSettings
) -> None:
    outcome = rendered(replica, cluster, options)
    if outcome is None:
        return
    for item in outcome.objects:
        kind, name = item.manifest["kind"], item.manifest["metadata"]["name"]
        if kind in {"Service", "LeaderWorkerSet", "Deployment"}:
            assert DNS_1035.fullmatch(name), (kind, name)
            assert len(name) <= (39 if kind == "LeaderWorkerSet" else 63)
        assert DNS_SUBDOMAIN.fullmatch(name), (kind, name)
        for value in labels_of(item.manifest):
            assert len(value) <= 63, value
            assert LABEL_VALUE.fullmatch(value), value


@random_cases(60)
@given(replicas(), clusters, choices)
def test_every_object_and_inventory_key_is_unique(
    replica: ReplicaInput, cluster: ClusterInput, options: RenderSettings
) -> None:
    outcome = rendered(replica, cluster, options)
    if outcome is None:
        return
    identities = [
        (item.manifest["kind"], item.manifest["metadata"]["name"])
        for item in outcome.objects
    ]
    assert len(set(identities)) == len(identities)
    assert len({item.key for item in outcome.objects}) == len(outcome.objects)


@random_cases(60)
@given(replicas(), clusters, choices)
def test_no_service_has_the_name_of_a_gang(
    replica: ReplicaInput, cluster: ClusterInput, options: RenderSettings
) -> None:
    # The controller creates a headless Service with the set's name, unless one exists
    # already.
    outcome = rendered(replica, cluster, options)
    if outcome is None:
        return
    services = {
        item.manifest["metadata"]["name"]
        for item in outcome.objects
        if item.manifest["kind"] == "Service"
    }
    gangs = {
        engine.workload_name
        for engine in outcome.engines
        if engine.kind == "LeaderWorkerSet"
    }
    assert services.isdisjoint(gangs)


@random_cases(60)
@given(
    replicas(),
    namespaces,
    clusters,
    st.just(RenderSettings(workload_namespace="shared")),
)
def test_two_namespaces_on_one_cluster_share_no_name(
    replica: ReplicaInput,
    namespace: str,
    cluster: ClusterInput,
    options: RenderSettings,
) -> None:
    other = ReplicaInput(**{**vars(replica), "namespace": namespace})
    first, second = (
        rendered(replica, cluster, options),
        rendered(other, cluster, options),
    )
    if namespace == replica.namespace or first is None or second is None:
        return

    def identities(outcome: Rendered) -> set[tuple[str, str]]:
        return {
            (item.manifest["kind"], item.manifest["metadata"]["name"])
            for item in outcome.objects
        }

    def selected(outcome: Rendered) -> set[str]:
        return {
            value
            for item in outcome.objects
            for value in _selector_values(item.manifest)
        }

    assert identities(first).isdisjoint(identities(second))
    assert selected(first).isdisjoint(selected(second) - {"prefill", "decode"})


def _selector_values(manifest: Any) -> Iterator[str]:
    selector = manifest.get("spec", {}).get("selector", {})
    yield from selector.get("matchLabels", selector).values()


odd = st.sampled_from([float("inf"), float("nan"), 10**400, "\ud800"])
scalars = (
    odd
    | st.none()
    | st.booleans()
    | st.integers(-2, 70000)
    | st.floats()
    | st.text(max_size=3)
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield every path in a tree except the root."""
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [
        found
        for name, inner in entries
        for found in [(*path, name), *paths_of(inner, (*path, name))]
    ]


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a tree with one changed value."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_value(copy[path[0]], path[1:], new)
    return copy


@random_cases(300)
@given(st.data(), replicas(), clusters, choices)
def test_a_broken_spec_is_refused_with_a_reason_and_never_crashes(
    data: st.DataObject,
    replica: ReplicaInput,
    cluster: ClusterInput,
    options: RenderSettings,
) -> None:
    spec = dict(replica.spec)
    for _ in range(data.draw(st.integers(1, 3))):
        spec = with_value(
            spec, data.draw(st.sampled_from(paths_of(spec))), data.draw(anything)
        )
    outcome = rendered(
        ReplicaInput(**{**vars(replica), "spec": spec}), cluster, options
    )
    if outcome is not None:
        assert [
            path for item in outcome.objects for path in nothings(item.manifest)
        ] == []


@random_cases(300)
@given(st.data(), anything)
def test_a_broken_cache_is_refused_with_a_reason_and_never_crashes(
    data: st.DataObject, value: Any
) -> None:
    hub = {
        "source": "HuggingFace",
        "huggingFace": {
            "repo": "a/b",
            "revision": "main",
            "sizeGiB": 1,
            "authSecret": {"name": "s", "key": "k"},
        },
    }
    oci = {
        "source": "OCI",
        "oci": {
            "image": "r/x:1",
            "pullSecret": "s",
            "plainHTTP": True,
            "scratch": "node",
            "sizeGiB": 1,
        },
    }
    spec = data.draw(st.sampled_from([hub, oci]))
    spec = with_value(spec, data.draw(st.sampled_from(paths_of(spec))), value)
    try:
        outcome = render_cache(
            CacheInput("ns", "c", "u", 1, "eu-1", spec),
            ClusterInput.assumed("eu-1", storage_class_name="rwx"),
            RenderSettings(),
        )
    except NotRenderable as refusal:
        said = refusal.problems
    else:
        said = tuple(item.key for item in outcome.objects)
    assert said
