"""Copies of a tenant's Secrets and ConfigMaps beside the pods that name them, deleted with the last of these pods.

Which ones is decided by `render/objects/propagation.py`, which reads no value. Values go from the secret store to the cluster and are not
kept. A copy is shared: each replica that needs it has an annotation on it, every write names the resource version that was read,
and whoever removes the last annotation deletes the copy. So no replica can delete a copy that another one needs, on whichever worker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind, ObjectId, Selection
from activities.cluster_objects.deletion import poll_intervals
from activities.cluster_objects.ownership import owner_of
from activities.render.engines.admission import read_spec
from activities.render.engines.references import references
from activities.render.inputs.findings import Findings
from activities.render.inputs.settings import RenderSettings
from activities.render.objects import components
from activities.render.objects.inventory_keys import COPY_PREFIXES
from activities.render.objects.propagation import CONFIG_MAP, OFF, SECRET, Copy, Reference, Source, plan
from activities.secrets.copy_data import read_copy_data
from activities.secrets.store import SecretInfo, SecretMissing, SecretReader, check_tenants_own
from api_types import labels
from api_types.digests import short_hash
from api_types.errors import CredentialsInvalid, NameConflict, PermissionDenied
from api_types.messages.cluster_work import AppliedObject, ApplyReplica
from api_types.pins import apiversions

_KINDS = (SECRET, CONFIG_MAP)
_REASON = SecretMissing.__name__


@dataclass(frozen=True)
class Needed:
    """The copies that one replica needs.

    `rewrites` is for `ReplicaInput.propagated`. `hash` covers the versions of what is copied. `kept` are copies whose source is gone: a
    missing input deletes nothing that running pods use. `warnings` name keys that pods need and the source does not have.
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
    return entry.key.startswith(COPY_PREFIXES)


async def needed_copies(store: SecretReader, order: ApplyReplica, settings: RenderSettings) -> Needed:
    """Find out which copies a replica needs; a spec that cannot be read needs none, and rendering says why.

    Raises CredentialsInvalid with reason SecretMissing for what must be copied and is not in the store, or may not be read there.
    """
    findings = Findings()
    spec = read_spec(order.spec, findings)
    wanted = references(spec) if not findings.problems and settings.secrets_propagation != OFF else ()
    if not wanted:
        return Needed()
    known = {entry.key: entry for entry in order.inventory if is_copy(entry)}
    found = {str(reference): await _info(store, order.namespace, reference) for reference in wanted}
    held = {str(reference): known[key] for reference in wanted if not found[str(reference)] and (key := reference.inventory_key) in known}
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
        hash=short_hash(versions) if versions else "",
        kept=tuple(held.values()),
        warnings=tuple(
            f"{name} of namespace {order.namespace} has no key {key!r}, which a pod references"
            for name, copy in copied.items()
            for key in copy.keys
            if (info := found[name]) and key not in info.keys
        ),
    )


def copy_conflicts(needed: Needed, found: Mapping[ObjectId, Json | None]) -> list[str]:
    """Say which names of copies are taken by other objects."""
    conflicts = []
    for copy in needed.copies:
        target = ObjectId.of(copy.manifest)
        live = found.get(target)
        if live and owner_of(live) != owner_of(copy.manifest):
            conflicts.append(f"{target} exists already and belongs to {owner_of(live)}")
    return conflicts


async def write_copy(cluster: ClusterApi, store: SecretReader, copy: Copy, user: str, uid: str) -> bool:
    """Write one copy as its source is now, with the annotation of the replica whose workload is named `user`. False if nothing changed.

    Raises CredentialsInvalid with reason SecretMissing if the source was deleted meanwhile, NameConflict if the object has another owner.
    """
    manifest = {**copy.manifest, **await _data(store, copy)}
    target = ObjectId.of(manifest)
    async for _ in poll_intervals():
        live = await cluster.get(target)
        if live is None:
            if await cluster.create(_with_metadata(manifest, {_user_key(user): uid})):
                return True
            continue
        if owner_of(live) != owner_of(manifest):
            raise NameConflict(f"{target} exists already and belongs to {owner_of(live)}; delete it there")
        if live["metadata"].get("deletionTimestamp"):
            continue
        users = {**_users(live), _user_key(user): uid}
        if _is_equal(manifest, live) and users == _users(live):
            return False
        metadata = live["metadata"]
        if live.get("type") != manifest.get("type"):
            # The type of a Secret is immutable; running pods have read what they need.
            await cluster.delete(target, uid=metadata["uid"], resource_version=metadata["resourceVersion"], propagation="Background")
            continue
        if await cluster.replace(_with_metadata(manifest, users, resource_version=metadata["resourceVersion"])):
            return True
    raise AssertionError("poll_intervals never ends")


async def release_copy(cluster: ClusterApi, target: ObjectId, user: str) -> bool:
    """Remove a replica's annotation from a copy, and delete the copy with the last one. False if the object is no copy of ours."""
    async for _ in poll_intervals():
        live = await cluster.get(target)
        if live is None:
            return True
        if not _is_ours(live):
            return False
        if live["metadata"].get("deletionTimestamp"):
            continue
        metadata = live["metadata"]
        others = {key: uid for key, uid in _users(live).items() if key != _user_key(user)}
        if not others:
            await cluster.delete(target, uid=metadata["uid"], resource_version=metadata["resourceVersion"], propagation="Background")
        elif others == _users(live) or await cluster.replace(_with_users(live, others)):
            return True
    raise AssertionError("poll_intervals never ends")


async def copies_of(cluster: ClusterApi, namespace: str, user: str) -> list[ObjectId]:
    """Find the copies that carry a replica's annotation."""
    selector = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE},{labels.COMPONENT}={components.SECRET}"
    found: list[ObjectId] = []
    for name in _KINDS:
        listed = await cluster.list(Selection(Kind(apiversions.CORE, name), namespace, selector, metadata_only=True))
        found += [ObjectId.of(item) for item in listed.items if _user_key(user) in _users(item)]
    return found


async def release_all(cluster: ClusterApi, targets: Iterable[ObjectId], user: str) -> list[str]:
    """Release copies. Gives why some were skipped."""
    return [f"{target} is no copy of ours" for target in targets if not await release_copy(cluster, target, user)]


async def _info(store: SecretReader, namespace: str, reference: Reference) -> SecretInfo | None:
    check_tenants_own(namespace, reference.name)
    try:
        info = await store.describe(namespace, reference.name)
    except PermissionDenied as error:
        raise CredentialsInvalid(f"{reference.kind} {namespace}/{reference.name} cannot be read: {error.message}", _REASON) from error
    return info if info and info.kind == reference.kind else None


async def _data(store: SecretReader, copy: Copy) -> Json:
    try:
        return await read_copy_data(store, copy)
    except SecretMissing as missing:
        raise CredentialsInvalid(str(missing), _REASON) from missing


def _user_key(user: str) -> str:
    return f"{labels.USER_PREFIX}{user}"


def _users(item: Json) -> dict[str, str]:
    annotations = item["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if key.startswith(labels.USER_PREFIX)}


def _with_metadata(manifest: Json, users: Mapping[str, str], resource_version: str = "") -> Json:
    metadata = {**manifest["metadata"], "annotations": {**manifest["metadata"]["annotations"], **users}}
    return {**manifest, "metadata": {**metadata, **({"resourceVersion": resource_version} if resource_version else {})}}


def _with_users(live: Json, users: Mapping[str, str]) -> Json:
    annotations = {key: value for key, value in live["metadata"]["annotations"].items() if not key.startswith(labels.USER_PREFIX)}
    return {**live, "metadata": {**live["metadata"], "annotations": {**annotations, **users}}}


def _is_equal(manifest: Json, live: Json) -> bool:
    def content(item: Json) -> list[Any]:
        return [item.get("type"), item.get("data") or {}, item.get("binaryData") or {}]

    wanted, stored = manifest["metadata"], live["metadata"]
    same_metadata = all(
        (stored.get(part) or {}).get(key) == value for part in ("labels", "annotations") for key, value in wanted[part].items()
    )
    return same_metadata and content(manifest) == content(live)


def _is_ours(item: Json) -> bool:
    return bool(owner_of(item).uid) and (item["metadata"].get("labels") or {}).get(labels.COMPONENT) == components.SECRET
