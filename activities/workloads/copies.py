"""Put copies of a tenant's Secrets and ConfigMaps beside the pods that name them, and take them away with the last one.

Which ones is decided by `render/propagation.py`, which sees no value. Values are read from the secret store here, written to the cluster,
and forgotten. A copy is shared: each replica that needs it leaves its mark on it, every write names the version that was read, and who
removes the last mark removes the copy. So no two replicas can take a copy from each other, on whichever worker they run.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind, ObjectId, Selection
from activities.cluster_objects.deletion import looks
from activities.cluster_objects.ownership import owner_of
from activities.render.engines.admission import read_spec
from activities.render.engines.references import references
from activities.render.inputs.findings import Findings
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.manifest import canonical
from activities.render.objects.propagation import CONFIG_MAP, OFF, SECRET, Copy, Reference, Source, plan
from activities.secrets.copy_data import read_copy_data
from activities.secrets.store import SecretInfo, SecretMissing, SecretStore
from api_types import apiversions, labels
from api_types.errors import CredentialsInvalid, NameConflict, PermissionDenied
from api_types.messages.cluster_work import AppliedObject, ApplyReplica

_KINDS = (SECRET, CONFIG_MAP)
_KEY_PREFIXES = tuple(f"{kind.lower()}-" for kind in _KINDS)
_COMPONENT = "secret"
_REASON = SecretMissing.__name__
_HASH_LENGTH = 16


@dataclass(frozen=True)
class Needed:
    """The copies that one replica needs.

    `rewrites` is for `ReplicaInput.propagated`. `hash` covers the versions of what is copied. `kept` are copies whose source is gone: a
    missing input takes nothing away from pods that run with it. `warnings` name keys that pods ask for and the source has not.
    """

    copies: tuple[Copy, ...] = ()
    rewrites: Mapping[str, str] = field(default_factory=dict)
    hash: str = ""
    kept: tuple[AppliedObject, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def targets(self) -> list[ObjectId]:
        """Name the copies to write."""
        return [ObjectId.of(copy.manifest) for copy in self.copies]


def is_copy(entry: AppliedObject) -> bool:
    """Tell whether an object of an inventory is a shared copy."""
    return entry.key.startswith(_KEY_PREFIXES)


async def needed_copies(store: SecretStore, order: ApplyReplica, settings: RenderSettings) -> Needed:
    """Find out which copies a replica needs; a spec that cannot be read needs none, and rendering says why.

    Raises CredentialsInvalid with reason SecretMissing for what must travel and is not in the store, or may not be read there.
    """
    findings = Findings()
    spec = read_spec(order.spec, findings)
    wanted = references(spec) if not findings.problems and settings.secrets_propagation != OFF else ()
    if not wanted:
        return Needed()
    known = {entry.key: entry for entry in order.inventory if is_copy(entry)}
    found = {str(reference): await _info(store, order.namespace, reference) for reference in wanted}
    held = {str(reference): known[key] for reference in wanted if not found[str(reference)] and (key := _key(reference)) in known}
    sources = {name: Source(info.type, info.labels) for name, info in found.items() if info}
    planned = plan(order.namespace, [reference for reference in wanted if str(reference) not in held], sources, settings)
    if planned.missing:
        raise CredentialsInvalid(
            f"{'; '.join(planned.missing)}: apply it to namespace {order.namespace} of the control plane, or make the reference optional",
            _REASON,
        )
    copied = {str(Reference(copy.kind, copy.source_name)): copy for copy in planned.copies}
    versions = sorted((name, info.version) for name, info in found.items() if info and name in copied)
    return Needed(
        copies=planned.copies,
        rewrites={**(planned.rewrites or {}), **{name: ObjectId.parse(entry.id).name for name, entry in held.items()}},
        hash=hashlib.sha256(canonical(versions).encode()).hexdigest()[:_HASH_LENGTH] if versions else "",
        kept=tuple(held.values()),
        warnings=tuple(
            f"{name} of namespace {order.namespace} has no key {key!r}, which a pod names"
            for name, copy in copied.items()
            for key in copy.keys
            if (info := found[name]) and key not in info.keys
        ),
    )


def copy_conflicts(needed: Needed, found: Mapping[ObjectId, Json | None]) -> list[str]:
    """Say which names of copies are held by objects that are not the same copies."""
    wrong = []
    for copy in needed.copies:
        target = ObjectId.of(copy.manifest)
        live = found.get(target)
        if live and owner_of(live) != owner_of(copy.manifest):
            wrong.append(f"{target} exists already and belongs to {owner_of(live)}")
    return wrong


async def write_copy(cluster: ClusterApi, store: SecretStore, copy: Copy, user: str, uid: str) -> bool:
    """Have one copy as its source is now, with the mark of the replica whose workload is named `user`. False if it was so already.

    Raises CredentialsInvalid with reason SecretMissing if the source went away meanwhile, NameConflict if the name is somebody else's.
    """
    manifest = {**copy.manifest, **await _data(store, copy)}
    target = ObjectId.of(manifest)
    async for _ in looks():
        live = await cluster.get(target)
        if live is None:
            if await cluster.create(_marked(manifest, {_mark(user): uid})):
                return True
            continue
        if owner_of(live) != owner_of(manifest):
            raise NameConflict(f"{target} exists already and belongs to {owner_of(live)}; delete it there")
        if live["metadata"].get("deletionTimestamp"):
            continue
        marks = {**_marks(live), _mark(user): uid}
        if _is_as(manifest, live) and marks == _marks(live):
            return False
        metadata = live["metadata"]
        if live.get("type") != manifest.get("type"):
            # The type of a Secret cannot be changed; pods that run have read what they need.
            await cluster.delete(target, uid=metadata["uid"], resource_version=metadata["resourceVersion"], propagation="Background")
            continue
        if await cluster.replace(_marked(manifest, marks, resource_version=metadata["resourceVersion"])):
            return True
    raise AssertionError("looks never end")


async def release_copy(cluster: ClusterApi, target: ObjectId, user: str) -> bool:
    """Take a replica's mark off a copy, and the copy away with the last mark. False if the object is no copy of ours."""
    async for _ in looks():
        live = await cluster.get(target)
        if live is None:
            return True
        if not _is_ours(live):
            return False
        if live["metadata"].get("deletionTimestamp"):
            continue
        metadata = live["metadata"]
        others = {mark: uid for mark, uid in _marks(live).items() if mark != _mark(user)}
        if not others:
            await cluster.delete(target, uid=metadata["uid"], resource_version=metadata["resourceVersion"], propagation="Background")
        elif others == _marks(live) or await cluster.replace(_remarked(live, others)):
            return True
    raise AssertionError("looks never end")


async def copies_of(cluster: ClusterApi, namespace: str, user: str) -> list[ObjectId]:
    """Find the copies that carry a replica's mark."""
    selector = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE},{labels.COMPONENT}={_COMPONENT}"
    found: list[ObjectId] = []
    for name in _KINDS:
        listed = await cluster.list(Selection(Kind(apiversions.CORE, name), namespace, selector, metadata_only=True))
        found += [ObjectId.of(item) for item in listed.items if _mark(user) in _marks(item)]
    return found


async def release_all(cluster: ClusterApi, targets: Iterable[ObjectId], user: str) -> list[str]:
    """Release copies. Gives why some were left alone."""
    return [f"{target} is no copy of ours" for target in targets if not await release_copy(cluster, target, user)]


async def _info(store: SecretStore, namespace: str, reference: Reference) -> SecretInfo | None:
    try:
        info = await store.describe(namespace, reference.name)
    except PermissionDenied as error:
        raise CredentialsInvalid(f"{reference.kind} {namespace}/{reference.name} cannot be looked at: {error.message}", _REASON) from error
    return info if info and info.kind == reference.kind else None


async def _data(store: SecretStore, copy: Copy) -> Json:
    try:
        return await read_copy_data(store, copy)
    except SecretMissing as missing:
        raise CredentialsInvalid(str(missing), _REASON) from missing


def _key(reference: Reference) -> str:
    return f"{reference.kind.lower()}-{reference.name}"


def _mark(user: str) -> str:
    return f"{labels.USER_PREFIX}{user}"


def _marks(item: Json) -> dict[str, str]:
    notes = item["metadata"].get("annotations") or {}
    return {key: value for key, value in notes.items() if key.startswith(labels.USER_PREFIX)}


def _marked(manifest: Json, marks: Mapping[str, str], resource_version: str = "") -> Json:
    metadata = {**manifest["metadata"], "annotations": {**manifest["metadata"]["annotations"], **marks}}
    return {**manifest, "metadata": {**metadata, **({"resourceVersion": resource_version} if resource_version else {})}}


def _remarked(live: Json, marks: Mapping[str, str]) -> Json:
    notes = {key: value for key, value in live["metadata"]["annotations"].items() if not key.startswith(labels.USER_PREFIX)}
    return {**live, "metadata": {**live["metadata"], "annotations": {**notes, **marks}}}


def _is_as(manifest: Json, live: Json) -> bool:
    def content(item: Json) -> list[Any]:
        return [item.get("type"), item.get("data") or {}, item.get("binaryData") or {}]

    wanted = manifest["metadata"]
    there = live["metadata"]
    marks = all((there.get(part) or {}).get(key) == value for part in ("labels", "annotations") for key, value in wanted[part].items())
    return marks and content(manifest) == content(live)


def _is_ours(item: Json) -> bool:
    return bool(owner_of(item).uid) and (item["metadata"].get("labels") or {}).get(labels.COMPONENT) == _COMPONENT
