"""Plan an apply that does not replace pods without consent.

A change of the part of the spec from which pods are rendered is a rollout, which the
deployment performs step by step. Pods would also change with a newer renderer, other
settings, other facts about the cluster, another volume claim or other Secret contents.
In these cases the pods, and the objects that only they read, are kept until the
deployment allows their replacement. All other objects are applied at once.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.answers import reading
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.observe.digest import owned_part
from activities.render.cache.container import ARTIFACT_KEY
from activities.render.objects.inventory_keys import (
    CLAIM_TEMPLATE_PREFIX,
    ENGINE_PREFIX,
    PICKER,
)
from activities.render.objects.manifest import RenderedObject, with_content
from activities.render.version import RENDERER_VERSION
from api_types import labels, names
from api_types.messages.cluster_work import AppliedObject
from api_types.text.quantity import parse_quantity

CACHE_CAUSE = "a different cache volume"
SECRETS_CAUSE = "a rotated Secret"
INPUTS_CAUSE = "a different setting or cluster fact"
# The fields of a workload's spec from which its controller creates pods: a change of
# any of them replaces the pods. The first field contains the pod templates.
_PODS = {
    kinds.DEPLOYMENT.kind: ("template",),
    kinds.LEADER_WORKER_SET.kind: ("leaderWorkerTemplate", "networkConfig"),
}
_GANG_TEMPLATES = ("leaderTemplate", "workerTemplate")
# The fields that the picker's pod reads when it starts, and the rules that grant its
# permissions. If their values do not match the pod, it may not start.
_READ_BY_PICKER = {"ConfigMap": "data", "Role": "rules", "ClusterRole": "rules"}


@dataclass(frozen=True)
class StoredPods:
    """A workload whose pods are kept.

    `kind` and `name` are those on the cluster. `template_hashes` starts with the hash
    of the serving pod template.
    """

    kind: str
    name: str
    template_hashes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The plan of an apply.

    `items` are applied in order. `pending` maps inventory keys to the workloads whose
    pods are kept, and `causes` are the reasons why their pods would change. `asked` is
    True if users requested the change, so that it only waits for its turn. `warnings`
    name missing objects that the kept pods need.
    """

    items: tuple[RenderedObject, ...]
    pending: Mapping[str, StoredPods] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    asked: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Applying:
    """The inputs of a plan.

    `items` are the rendered items and `found` the stored objects of the same names.
    `generation` is the generation to apply. `recreated` are the names of workloads that
    the cluster does not allow to change in place.
    """

    items: tuple[RenderedObject, ...]
    found: Mapping[ObjectId, Json | None]
    inventory: Iterable[AppliedObject]
    generation: int
    recreated: Collection[str] = ()


class _Staying(NamedTuple):
    """Pods that are kept, the reason why they would change, and their claim templates."""

    pods: StoredPods
    cause: str
    claim_templates: list[str]


async def plan_apply(cluster: ClusterApi, work: Applying) -> Plan:
    """Plan an apply that keeps pods whose spec is unchanged.

    Sends dry runs to the server and writes nothing. Raises ServerError if the response
    is not a workload.
    """
    kept, stays = dict[str, RenderedObject | None](), dict[str, _Staying]()
    for item in work.items:
        with reading(ObjectId.of(item.manifest)):
            live = await _stored_workload(cluster, item, work)
            if live is None or not _has_same_source(item, live, work.generation):
                continue
            renamed = ObjectId.of(live).identity != ObjectId.of(item.manifest).identity
            own = None if renamed else _with_stored_pods(item, live)
            if own is None or await _replaces_pods(
                cluster,
                item,
                live,
                recreated=live["metadata"]["name"] in work.recreated,
            ):
                pods = StoredPods(
                    live["kind"], live["metadata"]["name"], template_hashes(live)
                )
                kept[item.key] = own
                stays[item.key] = _Staying(
                    pods, _cause(item.manifest, live), _claim_templates(live)
                )
    changes = [staying.cause for staying in stays.values()]
    named = {name for staying in stays.values() for name in staying.claim_templates}
    planned = [_planned(item, kept, work.found, named) for item in work.items]
    return Plan(
        items=tuple(item for item in planned if item is not None),
        pending={key: staying.pods for key, staying in stays.items()},
        causes=tuple(dict.fromkeys(changes)),
        asked=any(cause in (CACHE_CAUSE, SECRETS_CAUSE) for cause in changes),
        warnings=await _lacking(cluster, work, named),
    )


async def _lacking(
    cluster: ClusterApi, work: Applying, named: Collection[str]
) -> tuple[str, ...]:
    """Return a warning for each deleted claim template that kept pods need.

    Templates that are no longer rendered cannot be created again.
    """
    rendered = {
        item.manifest["metadata"]["name"]
        for item in work.items
        if item.key.startswith(CLAIM_TEMPLATE_PREFIX)
    }
    earlier = [
        ObjectId.parse(entry.id)
        for entry in work.inventory
        if entry.key.startswith(CLAIM_TEMPLATE_PREFIX)
    ]
    wanted = [
        target
        for target in earlier
        if target.name in named and target.name not in rendered
    ]
    gone = [target for target in wanted if await cluster.get(target) is None]
    return tuple(
        f"{target.kind.kind}/{target.name} was deleted, and running pods cannot restart "
        "without it: run `modelplane rollout restart`"
        for target in gone
    )


async def _stored_workload(
    cluster: ClusterApi, item: RenderedObject, work: Applying
) -> Json | None:
    """Return the stored workload that an item replaces, by name or inventory key.

    Returns None if the item has no pods.
    """
    if labels.PODS_SOURCE not in _annotations(item.manifest):
        return None
    live = work.found[ObjectId.of(item.manifest)]
    earlier = next((entry for entry in work.inventory if entry.key == item.key), None)
    if live is None and earlier is not None:
        live = await cluster.get(ObjectId.parse(earlier.id))
    return None if live is None or live["metadata"].get("deletionTimestamp") else live


def _has_same_source(item: RenderedObject, live: Json, generation: int) -> bool:
    """Return whether the pods of a stored workload are created from the same spec.

    Workloads without the annotation are compared by generation.
    """
    made_from = _annotations(live).get(labels.PODS_SOURCE)
    if made_from:
        return bool(made_from == _annotations(item.manifest)[labels.PODS_SOURCE])
    return bool(_annotations(live).get(labels.GENERATION) == str(generation))


async def _replaces_pods(
    cluster: ClusterApi, item: RenderedObject, live: Json, *, recreated: bool
) -> bool:
    if _annotations(live).get(labels.RENDER_HASH) == item.hash:
        # Only fields of other managers differ, and the apply reverts them.
        return False
    fields = _PODS[live["kind"]]
    if recreated:
        own, wanted = (
            [_beside_templates(part) for part in parts]
            for parts in (_own_pods(live), map(item.manifest["spec"].get, fields))
        )
        return own != wanted or template_hashes(live) != template_hashes(item.manifest)
    answer = await cluster.apply(item.manifest, dry_run=True)
    first, *others = fields
    changed = bool(answer["spec"][first] != live["spec"][first])
    return changed or any(
        answer["spec"].get(name) != live["spec"].get(name) for name in others
    )


def _with_stored_pods(item: RenderedObject, live: Json) -> RenderedObject | None:
    """Return an item with the stored pod fields that Modelplane owns, or None."""
    own = dict(zip(_PODS[live["kind"]], _own_pods(live), strict=True))
    if next(iter(own.values())) is None:
        return None
    before, metadata = _annotations(live), item.manifest["metadata"]
    annotations = {
        key: value
        for key, value in metadata["annotations"].items()
        if key != labels.RENDERER
    }
    # Older workloads do not have these annotations: the generation identifies the spec
    # of their pods, and their renderer is unknown.
    about_pods = {
        key: before[key]
        for key in (labels.PODS_SOURCE, labels.RENDERER)
        if key in before
    }
    spec = {
        name: value for name, value in item.manifest["spec"].items() if name not in own
    }
    spec |= {name: value for name, value in own.items() if value is not None}
    kept = {**metadata, "annotations": {**annotations, **about_pods}}
    return with_content(item, {**item.manifest, "metadata": kept, "spec": spec})


def _own_pods(live: Json) -> list[Any]:
    """Return the applied values of each field from which pods are created.

    The value is None if Modelplane owns nothing in it.
    """
    return [owned_part(live, "spec", name) for name in _PODS[live["kind"]]]


def _beside_templates(part: Any) -> Any:
    """Return a field without its pod templates.

    Servers fill in defaults of templates, so their hashes are compared instead.
    """
    if not isinstance(part, dict):
        return part
    return {name: value for name, value in part.items() if name not in _GANG_TEMPLATES}


def _planned(
    item: RenderedObject,
    kept: Mapping[str, RenderedObject | None],
    found: Mapping[ObjectId, Json | None],
    named: Collection[str],
) -> RenderedObject | None:
    """Return the item to apply while pods are kept, or None to skip `item`.

    `named` are the claim templates of the kept pods.
    """
    if item.key in kept:
        return kept[item.key]
    live = found[ObjectId.of(item.manifest)]
    if item.key.startswith(CLAIM_TEMPLATE_PREFIX):
        # Claims are immutable, so a changed claim has a new name. Only future pods use
        # it.
        engine = item.manifest["metadata"]["labels"][labels.ENGINE]
        stays = any(
            names.label_value(key.removeprefix(ENGINE_PREFIX)) == engine
            for key in kept
            if key.startswith(ENGINE_PREFIX)
        )
        return (
            item
            if live or not stays or item.manifest["metadata"]["name"] in named
            else None
        )
    read = _READ_BY_PICKER.get(item.manifest["kind"])
    if (
        PICKER in kept
        and item.key.startswith(PICKER)
        and read
        and live
        and (own := owned_part(live, read)) is not None
    ):
        return with_content(item, {**item.manifest, read: own})
    return item


def _cause(manifest: Json, live: Json) -> str:
    """Return the reason why pods would change, causes that users requested first."""
    if _mounted(manifest) != _mounted(live):
        return CACHE_CAUSE
    before, after = _copied(live), _copied(manifest)
    if before and after and before != after:
        return SECRETS_CAUSE
    if _annotations(live).get(labels.RENDERER) != RENDERER_VERSION:
        return f"renderer {RENDERER_VERSION}"
    return INPUTS_CAUSE


def _annotations(item: Json) -> Mapping[str, str]:
    found: Mapping[str, str] = item["metadata"].get("annotations") or {}
    return found


def _templates(workload: Json) -> list[Json]:
    """Return the pod templates of a workload, the template of serving pods first."""
    spec = workload["spec"]
    if workload["kind"] == kinds.DEPLOYMENT.kind:
        return [spec["template"]]
    gang = spec["leaderWorkerTemplate"]
    return [gang[name] for name in _GANG_TEMPLATES if gang.get(name)]


def template_hashes(workload: Json) -> tuple[str, ...]:
    """Return the hashes of a workload's pod templates, the serving one first."""
    return tuple(
        _annotations({"metadata": {}, **template}).get(labels.TEMPLATE_HASH, "")
        for template in _templates(workload)
    )


def _copied(workload: Json) -> list[str | None]:
    """Return the hash of the copied Secrets for each pod template; [] if all lack it."""
    found = [
        _annotations({"metadata": {}, **template}).get(labels.PROPAGATED_HASH)
        for template in _templates(workload)
    ]
    return found if any(found) else []


def _claim_templates(workload: Json) -> list[str]:
    """Return the names of the claim templates that provide the devices of the pods."""
    key = "resourceClaimTemplateName"
    found: list[str] = []
    for template in _templates(workload):
        claims = template["spec"].get("resourceClaims", ())
        found += [claim[key] for claim in claims if key in claim]
    return found


def _mounted(workload: Json) -> list[list[Hashable]]:
    """Return the cache mounts of each pod template.

    These are claims, images, or the pods' own volumes with the artifacts that fill
    them.
    """
    return [list(_mounted_by(template["spec"])) for template in _templates(workload)]


def _mounted_by(pod: Json) -> Iterator[Hashable]:
    for volume in pod.get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]
        elif "image" in volume:
            yield volume["image"]["reference"]
        elif "ephemeral" in volume:
            # Servers store a claim with more fields and normalize its size.
            claim = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
            yield (
                claim.get("storageClassName"),
                parse_quantity(claim["resources"]["requests"]["storage"]),
            )
    for container in pod.get("initContainers", ()):
        yield from (
            each["value"]
            for each in container.get("env", ())
            if each["name"] == ARTIFACT_KEY and "value" in each
        )
