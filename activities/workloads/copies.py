"""Copies of a tenant's Secrets and ConfigMaps beside the pods that name them, deleted with the last of these pods.

Which ones is decided by `render/objects/propagation.py`, which reads no value; how they are shared, by `secrets/shared_copies.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from activities.cluster_objects.cluster_api import Json, ObjectId
from activities.cluster_objects.ownership import owner_of
from activities.render.cache import own_volume
from activities.render.engines.admission import read_spec
from activities.render.engines.references import references
from activities.render.inputs.findings import Findings
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.inventory_keys import COPY_PREFIXES
from activities.render.objects.propagation import OFF, Copy, Reference, Source, plan
from activities.render.routing.routes import POOL
from activities.secrets.shared_copies import REASON_MISSING, pull_secret_copies
from activities.secrets.store import SecretInfo, SecretReader, check_tenants_own
from api_types.digests import short_hash
from api_types.errors import CredentialsInvalid, PermissionDenied
from api_types.messages.cluster_work import AppliedObject, ApplyReplica


@dataclass(frozen=True)
class Needed:
    """The copies that one replica needs.

    `rewrites` is for `ReplicaInput.propagated`. `hash` covers the versions of what is copied, and `versions` has them by inventory key.
    `kept` are copies whose source is gone: a missing input deletes nothing that running pods use. `warnings` name keys that pods need and
    the source does not have.
    """

    copies: tuple[Copy, ...] = ()
    rewrites: Mapping[str, str] = field(default_factory=dict)
    hash: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
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
    filling = own_volume.sources(order.namespace, order.mounts)
    wanted = references(spec, order.mounts.values(), filling) if not findings.problems and settings.secrets_propagation != OFF else ()
    known = {entry.key: entry for entry in order.inventory if is_copy(entry)}
    platform = await _pull_secrets(store, order, settings, known)
    if not wanted:
        return platform
    found = {str(reference): await _info(store, order.namespace, reference) for reference in wanted}
    held = {str(reference): known[key] for reference in wanted if not found[str(reference)] and (key := reference.inventory_key) in known}
    sources = {name: Source(info.type, info.labels) for name, info in found.items() if info}
    planned = plan(order.namespace, [reference for reference in wanted if str(reference) not in held], sources, settings)
    if planned.missing:
        raise CredentialsInvalid(
            f"{'; '.join(planned.missing)}: apply it to namespace {order.namespace} of the control plane, or make the reference optional",
            REASON_MISSING,
        )
    copied = {str(Reference(copy.kind, copy.source_name)): copy for copy in planned.copies}
    # A source that is gone counts as it was when it was copied last: its copy stays, and pods that read it are not to be replaced for that.
    versions = {name: info.version for name, info in found.items() if info and name in copied}
    counted = sorted((versions | {name: entry.hash for name, entry in held.items() if entry.hash}).items())
    return Needed(
        copies=(*planned.copies, *platform.copies),
        rewrites={**(planned.rewrites or {}), **{name: ObjectId.parse(entry.id).name for name, entry in held.items()}},
        hash=short_hash(counted) if counted else "",
        versions={copy.inventory_key: versions[name] for name, copy in copied.items()},
        kept=(*held.values(), *platform.kept),
        warnings=tuple(
            f"{name} of namespace {order.namespace} has no key {key!r}, which a pod references"
            for name, copy in copied.items()
            for key in copy.keys
            if (info := found[name]) and key not in info.keys
        ),
    )


async def _pull_secrets(store: SecretReader, order: ApplyReplica, settings: RenderSettings, known: Mapping[str, AppliedObject]) -> Needed:
    """Find the platform's own pull secrets, for pods with images of this project: pickers, sidecars, and what fills volumes."""
    if order.facts.routing != POOL and not any(mount.node_local for mount in order.mounts.values()):
        return Needed()
    copies, problems = await pull_secret_copies(store, order.namespace, settings)
    missing = [problem for key, problem in problems.items() if key not in known]
    if missing:
        raise CredentialsInvalid("; ".join(missing), REASON_MISSING)
    return Needed(copies=tuple(copies), kept=tuple(known[key] for key in problems))


def copy_conflicts(needed: Needed, found: Mapping[ObjectId, Json | None]) -> list[str]:
    """Say which names of copies are taken by other objects."""
    conflicts = []
    for copy in needed.copies:
        target = ObjectId.of(copy.manifest)
        live = found.get(target)
        if live and owner_of(live) != owner_of(copy.manifest):
            conflicts.append(f"{target} exists already and belongs to {owner_of(live)}")
    return conflicts


async def _info(store: SecretReader, namespace: str, reference: Reference) -> SecretInfo | None:
    check_tenants_own(namespace, reference.name)
    try:
        info = await store.describe(namespace, reference.name)
    except PermissionDenied as error:
        raise CredentialsInvalid(
            f"{reference.kind} {namespace}/{reference.name} cannot be read: {error.message}", REASON_MISSING
        ) from error
    return info if info and info.kind == reference.kind else None
