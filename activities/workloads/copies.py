"""Copies of a tenant's Secrets and ConfigMaps in the namespace of its pods.

The copies are deleted with the last pod that references them.
`render/objects/propagation.py` decides which objects are copied without reading a
value. `secrets/shared_copies.py` implements how replicas share copies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from activities.cluster_objects.cluster_api import Json, ObjectId
from activities.cluster_objects.ownership import owner_of
from activities.render.cache import own_volume
from activities.render.engines.admission import read_spec
from activities.render.engines.references import references
from activities.render.inputs.findings import Findings
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.inventory_keys import COPY_PREFIXES
from activities.render.objects.propagation import (
    OFF,
    PropagatedCopy,
    Reference,
    Source,
    plan,
)
from activities.render.routing.routes import POOL
from activities.secrets.shared_copies import REASON_MISSING, pull_secret_copies
from activities.secrets.store import SecretInfo, SecretReader, check_tenants_own
from api_types.digests import short_hash
from api_types.errors import CredentialsInvalid, PermissionDenied
from api_types.messages.cluster_work import AppliedObject, ApplyReplica


@dataclass(frozen=True)
class Needed:
    """The copies that one replica needs.

    `rewrites` is for `ReplicaInput.propagated`. `versions` has the versions of the
    copied objects by inventory key, and `hash` covers them. `kept` are copies whose
    source was deleted: a missing source must not delete a copy that running pods use.
    `warnings` name keys that pods reference and the source does not have.
    """

    copies: tuple[PropagatedCopy, ...] = ()
    rewrites: Mapping[str, str] = field(default_factory=dict)
    hash: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[AppliedObject, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def targets(self) -> list[ObjectId]:
        return [ObjectId.of(copy.manifest) for copy in self.copies]


def is_copy(entry: AppliedObject) -> bool:
    """Return whether an inventory entry is a shared copy."""
    return entry.key.startswith(COPY_PREFIXES)


async def needed_copies(
    store: SecretReader, order: ApplyReplica, settings: RenderSettings
) -> Needed:
    """Return the copies that a replica needs.

    An invalid spec needs none; rendering reports its problems. Raises
    CredentialsInvalid with reason SecretMissing for an object that must be copied and
    is not in the store, or cannot be read there.
    """
    findings = Findings()
    spec = read_spec(order.spec, findings)
    filling = own_volume.sources(order.namespace, order.mounts)
    wanted: tuple[Reference, ...] = ()
    if not findings.problems and settings.secrets_propagation != OFF:
        wanted = references(spec, order.mounts.values(), filling)
    known = {entry.key: entry for entry in order.inventory if is_copy(entry)}
    platform = await _pull_secrets(store, order, settings, known)
    if not wanted:
        return platform
    found: dict[str, SecretInfo | None] = {}
    held: dict[str, AppliedObject] = {}
    for reference in wanted:
        name, key = str(reference), reference.inventory_key
        found[name] = await _info(store, order.namespace, reference)
        if not found[name] and key in known:
            held[name] = known[key]
    sources = {
        name: Source(info.type, info.labels) for name, info in found.items() if info
    }
    planned = plan(
        order.namespace,
        [reference for reference in wanted if str(reference) not in held],
        sources,
        settings,
    )
    if planned.missing:
        raise CredentialsInvalid(
            f"{'; '.join(planned.missing)}: apply it to namespace {order.namespace} "
            "of the control plane, or make the reference optional",
            REASON_MISSING,
        )
    copied = {
        str(Reference(copy.kind, copy.source_name)): copy for copy in planned.copies
    }
    # For a deleted source, use the version that was copied last: its copy is kept, and
    # pods that read it must not be replaced because of the deletion.
    versions = {
        name: info.version for name, info in found.items() if info and name in copied
    }
    last_copied = {name: entry.hash for name, entry in held.items() if entry.hash}
    counted = sorted((versions | last_copied).items())
    return Needed(
        copies=(*planned.copies, *platform.copies),
        rewrites={
            **(planned.rewrites or {}),
            **{name: ObjectId.parse(entry.id).name for name, entry in held.items()},
        },
        hash=short_hash(counted) if counted else "",
        versions={copy.inventory_key: versions[name] for name, copy in copied.items()},
        kept=(*held.values(), *platform.kept),
        warnings=tuple(_missing_keys(order.namespace, copied, found)),
    )


def _missing_keys(
    namespace: str,
    copied: Mapping[str, PropagatedCopy],
    found: Mapping[str, SecretInfo | None],
) -> Iterator[str]:
    for name, copy in copied.items():
        info = found[name]
        for key in copy.keys:
            if info and key not in info.keys:
                yield (
                    f"{name} of namespace {namespace} has no key {key!r}, "
                    "but a pod references it"
                )


async def _pull_secrets(
    store: SecretReader,
    order: ApplyReplica,
    settings: RenderSettings,
    known: Mapping[str, AppliedObject],
) -> Needed:
    """Return the platform's pull secrets, if pods use images of this project.

    Pickers, sidecars and the containers that fill volumes have such images.
    """
    if order.facts.routing != POOL and not any(
        mount.node_local for mount in order.mounts.values()
    ):
        return Needed()
    copies, problems = await pull_secret_copies(store, order.namespace, settings)
    missing = [problem for key, problem in problems.items() if key not in known]
    if missing:
        raise CredentialsInvalid("; ".join(missing), REASON_MISSING)
    return Needed(copies=tuple(copies), kept=tuple(known[key] for key in problems))


def copy_conflicts(needed: Needed, found: Mapping[ObjectId, Json | None]) -> list[str]:
    """Return a conflict for each copy whose name is taken by another object."""
    conflicts = []
    for copy in needed.copies:
        target = ObjectId.of(copy.manifest)
        live = found.get(target)
        if live and owner_of(live) != owner_of(copy.manifest):
            conflicts.append(f"{target} exists already and belongs to {owner_of(live)}")
    return conflicts


async def _info(
    store: SecretReader, namespace: str, reference: Reference
) -> SecretInfo | None:
    check_tenants_own(namespace, reference.name)
    try:
        info = await store.describe(namespace, reference.name)
    except PermissionDenied as error:
        raise CredentialsInvalid(
            f"{reference.kind} {namespace}/{reference.name} cannot be read: "
            f"{error.message}",
            REASON_MISSING,
        ) from error
    return info if info and info.kind == reference.kind else None
