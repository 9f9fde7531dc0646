"""Plan which Secrets and ConfigMaps of the control plane are copied to a cluster.

This module reads only names, types and keys. The activity that applies a plan reads the
values and writes them to the cluster. Rendered objects, hashes and histories never
contain values.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from activities.render.inputs.settings import RenderSettings, workload_namespace
from activities.render.objects import components, inventory_keys
from activities.render.objects.manifest import Json, RenderOwner, labelled_item
from api_types import labels, names
from api_types.pins import apiversions

SECRET = "Secret"  # noqa: S105 -- a kind
CONFIG_MAP = "ConfigMap"
OFF = "off"
ALL = "all"
_DOCKER_TYPES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_OPAQUE = "Opaque"


@dataclass(frozen=True)
class Reference:
    """A Secret or ConfigMap that pods reference.

    Empty `keys` means all keys. Pods start without an `optional` one.
    """

    kind: str
    name: str
    keys: tuple[str, ...] = ()
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def inventory_key(self) -> str:
        """The inventory key of its copy: one of `COPY_PREFIXES` and the name."""
        return f"{self.kind.lower()}-{self.name}"


@dataclass(frozen=True)
class Source:
    """The object on the control plane that a reference names."""

    type: str = _OPAQUE
    labels: Mapping[str, str] | None = None

    @property
    def labelled(self) -> bool:
        """Return whether its owner allows copies of it."""
        return (self.labels or {}).get(labels.PROPAGATE) == "true"


@dataclass(frozen=True)
class PropagatedCopy:
    """One copy to create: the manifest, with `keys` of the source (all if empty).

    `inventory_key` is its stable key among a consumer's objects. The manifest contains
    everything but the data. With `platform` the source belongs to the platform, and a
    setting names it.
    """

    inventory_key: str
    kind: str
    source_namespace: str
    source_name: str
    keys: tuple[str, ...]
    manifest: Json
    platform: bool = False

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True)
class Propagation:
    """A plan of copies.

    `rewrites` is for `ReplicaInput.propagated`. `missing` has one sentence per missing
    source.
    """

    copies: tuple[PropagatedCopy, ...] = ()
    rewrites: Mapping[str, str] | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class PullSecret:
    """A docker config of the platform that `images.pullSecrets` names.

    Pods with images of this project use it.
    """

    name: str

    @property
    def inventory_key(self) -> str:
        """The inventory key of its copy."""
        return f"{inventory_keys.PULL_SECRET_PREFIX}{self.name}"

    @property
    def copy_name(self) -> str:
        """The name of its copy in each namespace."""
        return names.copy_name(labels.SYSTEM_NAMESPACE, SECRET, self.name, ())

    def problem(self, secret_type: str | None) -> str:
        """Return why a Secret of this type cannot be used, or "".

        `secret_type` is None if the Secret does not exist.
        """
        if secret_type in _DOCKER_TYPES:
            return ""
        why = "does not exist" if secret_type is None else f"has type {secret_type}"
        return (
            f"Secret {labels.SYSTEM_NAMESPACE}/{self.name} {why}: setting "
            f"images.pullSecrets names it; apply it there with type {_DOCKER_TYPES[0]}, "
            "or remove it from the setting"
        )


def pull_secrets(settings: RenderSettings) -> list[Json]:
    """Return the `imagePullSecrets` of a pod with an image of this project."""
    return [{"name": PullSecret(name).copy_name} for name in settings.pull_secrets]


def pull_secret_copy(
    wanted: PullSecret, secret_type: str, namespace: str, settings: RenderSettings
) -> PropagatedCopy:
    """Return the copy of a platform pull secret for pods of `namespace`.

    `namespace` is the namespace on the control plane.
    """
    owner = RenderOwner(
        SECRET, labels.SYSTEM_NAMESPACE, wanted.name, f"{SECRET}/{wanted.name}", 1
    )
    manifest = copy_manifest(
        SECRET, secret_type, workload_namespace(namespace, settings), wanted.copy_name
    )
    item = labelled_item(owner, wanted.inventory_key, components.SECRET, manifest)
    return PropagatedCopy(
        wanted.inventory_key,
        SECRET,
        labels.SYSTEM_NAMESPACE,
        wanted.name,
        (),
        item.manifest,
        platform=True,
    )


def plan(
    namespace: str,
    wanted: Iterable[Reference],
    sources: Mapping[str, Source],
    settings: RenderSettings,
) -> Propagation:
    """Decide for each reference whether its source is copied.

    Otherwise the name is used as written.

    `sources` maps `Secret/<name>` and `ConfigMap/<name>` to the objects that exist in
    `namespace` on the control plane.
    """
    mode = settings.secrets_propagation
    if mode == OFF:
        return Propagation(rewrites={})
    copies, rewrites, missing = [], {}, []
    for reference in wanted:
        source = sources.get(str(reference))
        if source is None:
            if mode == ALL and not reference.optional:
                missing.append(
                    f"{reference.kind} {namespace}/{reference.name} does not exist, "
                    "but the replica needs it"
                )
            continue
        if mode == ALL or source.labelled:
            made = _copy(namespace, reference, source, settings)
            copies.append(made)
            rewrites[str(reference)] = made.name
    return Propagation(tuple(copies), rewrites, tuple(missing))


def copy_manifest(kind: str, secret_type: str, namespace: str, name: str) -> Json:
    """Return a Secret or ConfigMap without its data."""
    manifest: Json = {
        "apiVersion": apiversions.CORE,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
    }
    return {**manifest, "type": secret_type} if kind == SECRET else manifest


def _copy(
    namespace: str, reference: Reference, source: Source, settings: RenderSettings
) -> PropagatedCopy:
    keys = () if source.type in _DOCKER_TYPES else reference.keys
    # The keys are part of the identity. Otherwise two replicas that need different keys
    # would overwrite each other's copy repeatedly.
    name = names.copy_name(namespace, reference.kind, reference.name, keys)
    # Replicas share the copy, so its owner is its source and not one of the replicas.
    owner = RenderOwner(reference.kind, namespace, reference.name, str(reference), 1)
    manifest = copy_manifest(
        reference.kind, source.type, workload_namespace(namespace, settings), name
    )
    item = labelled_item(owner, reference.inventory_key, components.SECRET, manifest)
    return PropagatedCopy(
        reference.inventory_key,
        reference.kind,
        namespace,
        reference.name,
        keys,
        item.manifest,
    )
