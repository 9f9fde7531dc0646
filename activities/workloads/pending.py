"""What an apply leaves as it is, because it would replace pods that are to stay.

Pods change with the spec that they are made from: that is a rollout, and the deployment steps it. They also change with a newer renderer,
other settings, other facts about the cluster, another volume claim or other contents of Secrets. Then the pods stay, with what only they
read, until the deployment says that they may be replaced; everything else is applied at once.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.answers import reading
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.observe.digest import owned_part
from activities.render.cache.container import ARTIFACT_KEY
from activities.render.objects.inventory_keys import CLAIM_TEMPLATE_PREFIX, ENGINE_PREFIX, PICKER
from activities.render.objects.manifest import Item, with_content
from activities.render.version import RENDERER_VERSION
from api_types import labels, names
from api_types.messages.cluster_work import AppliedObject
from api_types.text.quantity import parse_quantity

CACHE_CAUSE = "another volume of its cache"
SECRETS_CAUSE = "a rotated Secret"
INPUTS_CAUSE = "another setting or fact of the cluster"
# The fields of a workload's spec that its controller makes pods from: another value of any of them replaces the pods. In the first one are
# the pod templates.
_PODS = {kinds.DEPLOYMENT.kind: ("template",), kinds.LEADER_WORKER_SET.kind: ("leaderWorkerTemplate", "networkConfig")}
_GANG_TEMPLATES = ("leaderTemplate", "workerTemplate")
# What the picker's pod reads when it starts, and may do: with other pods than these are for, it may not start.
_READ_BY_PICKER = {"ConfigMap": "data", "Role": "rules", "ClusterRole": "rules"}


@dataclass(frozen=True)
class StoredPods:
    """A workload whose pods stay: its name and kind on the cluster, and the hashes of its pod templates, the serving one first."""

    kind: str
    name: str
    template_hashes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What an apply does.

    `items` are applied, in order. `pending` has, by inventory key, the workloads whose pods stay. `causes` says why they would change;
    `asked`: users asked for that, so that it only waits for its turn. `warnings`: what pods that stay lack.
    """

    items: tuple[Item, ...]
    pending: Mapping[str, StoredPods] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    asked: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Applying:
    """What a plan is made from: rendered items, the stored objects under their names, the inventory, and the generation to apply.

    `recreated` are names of workloads that the cluster lets nobody change in place.
    """

    items: tuple[Item, ...]
    found: Mapping[ObjectId, Json | None]
    inventory: Iterable[AppliedObject]
    generation: int
    recreated: Collection[str] = ()


class _Staying(NamedTuple):
    """Pods that stay, why others would be made now, and the claim templates that they get their devices from."""

    pods: StoredPods
    cause: str
    claim_templates: list[str]


async def plan_apply(cluster: ClusterApi, work: Applying) -> Plan:
    """Find out which pods an apply would replace although the spec that they are made from is the same.

    Asks the server what it would store; nothing is written. Raises ServerError if the server's answer is no workload.
    """
    kept, stays = dict[str, Item | None](), dict[str, _Staying]()
    for item in work.items:
        with reading(ObjectId.of(item.manifest)):
            live = await _stored_workload(cluster, item, work)
            if live is None or not _has_same_source(item, live, work.generation):
                continue
            renamed = ObjectId.of(live).identity != ObjectId.of(item.manifest).identity
            own = None if renamed else _with_stored_pods(item, live)
            if own is None or await _replaces_pods(cluster, item, live, recreated=live["metadata"]["name"] in work.recreated):
                pods = StoredPods(live["kind"], live["metadata"]["name"], template_hashes(live))
                kept[item.key] = own
                stays[item.key] = _Staying(pods, _cause(item.manifest, live), _claim_templates(live))
    changes = [staying.cause for staying in stays.values()]
    named = {name for staying in stays.values() for name in staying.claim_templates}
    return Plan(
        items=tuple(planned for item in work.items if (planned := _planned(item, kept, work.found, named)) is not None),
        pending={key: staying.pods for key, staying in stays.items()},
        causes=tuple(dict.fromkeys(changes)),
        asked=any(cause in (CACHE_CAUSE, SECRETS_CAUSE) for cause in changes),
        warnings=await _lacking(cluster, work, named),
    )


async def _lacking(cluster: ClusterApi, work: Applying, named: Collection[str]) -> tuple[str, ...]:
    """Say which claim templates of pods that stay are gone and are not rendered any more: nothing can make them again."""
    rendered = {item.manifest["metadata"]["name"] for item in work.items if item.key.startswith(CLAIM_TEMPLATE_PREFIX)}
    earlier = [ObjectId.parse(entry.id) for entry in work.inventory if entry.key.startswith(CLAIM_TEMPLATE_PREFIX)]
    wanted = [target for target in earlier if target.name in named and target.name not in rendered]
    gone = [target for target in wanted if await cluster.get(target) is None]
    return tuple(
        f"{target.kind.kind}/{target.name} is gone, without which pods that stay do not start again: run `modelplane rollout restart`"
        for target in gone
    )


async def _stored_workload(cluster: ClusterApi, item: Item, work: Applying) -> Json | None:
    """Give the stored workload in whose place an item is applied, by its name or by its inventory key; None if the item has no pods."""
    if labels.PODS_SOURCE not in _annotations(item.manifest):
        return None
    live = work.found[ObjectId.of(item.manifest)]
    earlier = next((entry for entry in work.inventory if entry.key == item.key), None)
    if live is None and earlier is not None:
        live = await cluster.get(ObjectId.parse(earlier.id))
    return None if live is None or live["metadata"].get("deletionTimestamp") else live


def _has_same_source(item: Item, live: Json, generation: int) -> bool:
    """Tell whether the pods of a stored workload are made from the same spec; by its generation where that is all it says."""
    made_from = _annotations(live).get(labels.PODS_SOURCE)
    if made_from:
        return bool(made_from == _annotations(item.manifest)[labels.PODS_SOURCE])
    return bool(_annotations(live).get(labels.GENERATION) == str(generation))


async def _replaces_pods(cluster: ClusterApi, item: Item, live: Json, *, recreated: bool) -> bool:
    if _annotations(live).get(labels.RENDER_HASH) == item.hash:
        # What differs is what others have written, and that is taken back.
        return False
    fields = _PODS[live["kind"]]
    if recreated:
        own, wanted = ([_beside_templates(part) for part in parts] for parts in (_own_pods(live), map(item.manifest["spec"].get, fields)))
        return own != wanted or template_hashes(live) != template_hashes(item.manifest)
    answer = await cluster.apply(item.manifest, dry_run=True)
    first, *others = fields
    changed = bool(answer["spec"][first] != live["spec"][first])
    return changed or any(answer["spec"].get(name) != live["spec"].get(name) for name in others)


def _with_stored_pods(item: Item, live: Json) -> Item | None:
    """Give an item with the pods that are stored, as far as they are ours; None if none of them is."""
    own = dict(zip(_PODS[live["kind"]], _own_pods(live), strict=True))
    if next(iter(own.values())) is None:
        return None
    before, metadata = _annotations(live), item.manifest["metadata"]
    annotations = {key: value for key, value in metadata["annotations"].items() if key != labels.RENDERER}
    # Of pods that are older than these annotations, the spec is known by their generation, and the renderer is not.
    about_pods = {key: before[key] for key in (labels.PODS_SOURCE, labels.RENDERER) if key in before}
    return with_content(
        item,
        {
            **item.manifest,
            "metadata": {**metadata, "annotations": {**annotations, **about_pods}},
            "spec": {
                **{name: value for name, value in item.manifest["spec"].items() if name not in own},
                **{name: value for name, value in own.items() if value is not None},
            },
        },
    )


def _own_pods(live: Json) -> list[Any]:
    """Give what we applied of each field that pods are made from, None where that is nothing."""
    return [owned_part(live, "spec", name) for name in _PODS[live["kind"]]]


def _beside_templates(part: Any) -> Any:
    """Give what a field has beside pod templates, whose hashes say more than what is stored: servers fill in defaults."""
    return {name: value for name, value in part.items() if name not in _GANG_TEMPLATES} if isinstance(part, dict) else part


def _planned(item: Item, kept: Mapping[str, Item | None], found: Mapping[ObjectId, Json | None], named: Collection[str]) -> Item | None:
    """Give what is applied in place of an item while pods stay; None for nothing. `named` are the claim templates of these pods."""
    if item.key in kept:
        return kept[item.key]
    live = found[ObjectId.of(item.manifest)]
    if item.key.startswith(CLAIM_TEMPLATE_PREFIX):
        # Claims are immutable, so other ones have another name: these are for the pods to come.
        engine = item.manifest["metadata"]["labels"][labels.ENGINE]
        stays = any(names.label_value(key.removeprefix(ENGINE_PREFIX)) == engine for key in kept if key.startswith(ENGINE_PREFIX))
        return item if live or not stays or item.manifest["metadata"]["name"] in named else None
    read = _READ_BY_PICKER.get(item.manifest["kind"])
    if PICKER in kept and item.key.startswith(PICKER) and read and live and (own := owned_part(live, read)) is not None:
        return with_content(item, {**item.manifest, read: own})
    return item


def _cause(manifest: Json, live: Json) -> str:
    """Say why pods would change, what users asked for first."""
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
    """Give the pod templates of a workload, the one of serving pods first."""
    spec = workload["spec"]
    if workload["kind"] == kinds.DEPLOYMENT.kind:
        return [spec["template"]]
    gang = spec["leaderWorkerTemplate"]
    return [gang[name] for name in _GANG_TEMPLATES if gang.get(name)]


def template_hashes(workload: Json) -> tuple[str, ...]:
    """Return the hash of each pod template of a workload. The template of serving pods comes first."""
    return tuple(_annotations({"metadata": {}, **template}).get(labels.TEMPLATE_HASH, "") for template in _templates(workload))


def _copied(workload: Json) -> list[str | None]:
    """Give the hash of the copied Secrets that each pod template carries, if it carries one."""
    found = [_annotations({"metadata": {}, **template}).get(labels.PROPAGATED_HASH) for template in _templates(workload)]
    return found if any(found) else []


def _claim_templates(workload: Json) -> list[str]:
    """Give the names of the claim templates that the pods of a workload get their devices from."""
    claims = [claim for template in _templates(workload) for claim in template["spec"].get("resourceClaims", ())]
    return [claim["resourceClaimTemplateName"] for claim in claims if "resourceClaimTemplateName" in claim]


def _mounted(workload: Json) -> list[list[Hashable]]:
    """Give what of caches the pods of each template mount: claims, images, or volumes of their own with what fills those."""
    return [list(_mounted_by(template["spec"])) for template in _templates(workload)]


def _mounted_by(pod: Json) -> Iterator[Hashable]:
    for volume in pod.get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]
        elif "image" in volume:
            yield volume["image"]["reference"]
        elif "ephemeral" in volume:
            # Servers store a claim with more fields than were sent, and write its size in another way.
            claim = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
            yield claim.get("storageClassName"), parse_quantity(claim["resources"]["requests"]["storage"])
    for container in pod.get("initContainers", ()):
        yield from (each["value"] for each in container.get("env", ()) if each["name"] == ARTIFACT_KEY and "value" in each)
