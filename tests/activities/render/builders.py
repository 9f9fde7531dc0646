"""Builders that fill in every field that a rendering test is not about."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from activities.render.inputs.facts import ClusterInput, ReplicaInput
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from activities.render.replica import render_replica

GPU = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 8}
CLAIM = "modelcache-ml-team-qwen-0a1b2c3d"


def a_member(
    role: str = "Standalone",
    *,
    pool: str = "h100",
    requests: Iterable[Mapping[str, Any]] = (GPU,),
    **template: Any,
) -> dict[str, Any]:
    """Return one member.

    `template` takes image, command, args, env, labels, annotations, pull_secrets, and
    nodes for a Worker.
    """
    container = {"name": "engine", "image": template.pop("image", "acme/vllm:1")}
    container |= {
        field: template.pop(field)
        for field in ("command", "args", "env")
        if field in template
    }
    pod: dict[str, Any] = {"containers": [container]}
    if "pull_secrets" in template:
        pod["imagePullSecrets"] = [
            {"name": name} for name in template.pop("pull_secrets")
        ]
    metadata = {
        field: template.pop(field)
        for field in ("labels", "annotations")
        if field in template
    }
    member: dict[str, Any] = {
        "role": role,
        "nodePoolName": pool,
        "template": {"spec": pod},
    }
    if metadata:
        member["template"]["metadata"] = metadata
    if "nodes" in template:
        member["worker"] = {"nodes": template.pop("nodes")}
    if requests:
        member["deviceRequests"] = [dict(request) for request in requests]
    assert not template, f"unknown: {template}"
    return member


def an_engine(
    name: str = "main", *members: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    """Return one engine: Standalone unless members are given."""
    return {"name": name, "members": list(members or [a_member()]), **fields}


def a_gang(
    name: str = "main",
    leader: Mapping[str, Any] | None = None,
    worker: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return one Leader with Workers."""
    return an_engine(
        name,
        a_member("Leader", **(leader or {})),
        a_member("Worker", **{"nodes": 3, **(worker or {})}),
        **fields,
    )


def a_pair(
    decode: Mapping[str, Any] | None = None, prefill: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return a decode and a prefill engine.

    Decode comes first, and the names do not contain the phases.
    """
    return [
        an_engine("alpha", a_member(**(decode or {})), phase="Decode"),
        an_engine("beta", a_member(**(prefill or {})), phase="Prefill"),
    ]


def a_replica(
    *engines: dict[str, Any], mode: str = "", cache: str = "", **fields: Any
) -> ReplicaInput:
    """Return the ModelReplica `ml-team/qwen3-8b-1a2b3` of deployment `qwen3-8b`.

    It is on cluster `eu-1`.
    """
    spec: dict[str, Any] = {
        "clusterName": "eu-1",
        "engines": list(engines or [an_engine()]),
    }
    if mode:
        spec["serving"] = {"mode": mode}
    if cache:
        spec["modelCacheRef"] = {"name": cache}
    identity = {
        "namespace": "ml-team",
        "name": "qwen3-8b-1a2b3",
        "uid": "uid-1",
        "generation": 1,
        "deployment": "qwen3-8b",
        "index": 0,
    }
    return ReplicaInput(**{**identity, "cluster": "eu-1", "spec": spec, **fields})


def a_cluster(*, queues: frozenset[str] | None = None, **fields: Any) -> ClusterInput:
    """Return a provisioned cluster with the whole stack."""
    return replace(ClusterInput.assumed("eu-1", **fields), queues=queues)


def render(
    *engines: dict[str, Any],
    cluster: ClusterInput | None = None,
    settings: Mapping[str, Any] | None = None,
    **replica: Any,
) -> Rendered:
    """Render one replica of these engines."""
    return render_replica(
        a_replica(*engines, **replica),
        cluster or a_cluster(),
        RenderSettings(**(settings or {})),
    )


def render_pair(
    decode: Mapping[str, Any] | None = None,
    prefill: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Rendered:
    """Render one disaggregated replica."""
    return render(*a_pair(decode, prefill), mode="PrefillDecode", **fields)


def the(rendered: Rendered, key: str) -> Any:
    """Return the manifest under an inventory key."""
    return next(item.manifest for item in rendered.objects if item.key == key)


def keys(rendered: Rendered) -> list[str]:
    """Return all inventory keys in apply order."""
    return [item.key for item in rendered.objects]


def pod(rendered: Rendered, engine: str = "main", role: str = "Leader") -> Any:
    """Return the pod template of an engine; for a gang of the given role."""
    spec = the(rendered, f"model-serving-{engine}")["spec"]
    if "template" in spec:
        return spec["template"]
    return spec["leaderWorkerTemplate"][
        "leaderTemplate" if role == "Leader" else "workerTemplate"
    ]


def container(rendered: Rendered, engine: str = "main", role: str = "Leader") -> Any:
    """Return the engine container of an engine's pods."""
    return pod(rendered, engine, role)["spec"]["containers"][0]


def env(
    rendered: Rendered, engine: str = "main", role: str = "Leader"
) -> dict[str, Any]:
    """Return the environment of the engine container by name, in order.

    The values are the value or the source of each variable.
    """
    entries = container(rendered, engine, role).get("env", [])
    assert len({entry["name"] for entry in entries}) == len(entries)
    return {
        entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries
    }


def nothings(value: Any, path: str = "") -> Iterator[str]:
    """Return the paths at which a tree has null or a meaningless empty value."""
    if value is None or value == []:
        yield path
    elif isinstance(value, dict):
        if not value and not path.endswith("emptyDir"):
            yield path
        for name, inner in value.items():
            yield from nothings(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from nothings(inner, f"{path}[{position}]")
