"""Plan which Secrets and ConfigMaps of the control plane are copied to a cluster.

Only names, types and keys are read here. The activity that applies a plan reads the values and writes them to the cluster; they never
enter a render, a hash or a history.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from activities.render.inputs.settings import RenderSettings, workload_namespace
from activities.render.objects import components, inventory_keys
from activities.render.objects.manifest import Json, Owner, labelled_item
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
    """A Secret or ConfigMap that pods name. `keys` is empty for all keys; `optional`: pods start without it."""

    kind: str
    name: str
    keys: tuple[str, ...] = ()
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def inventory_key(self) -> str:
        """The key of its copy in an inventory: one of `COPY_PREFIXES` and the name."""
        return f"{self.kind.lower()}-{self.name}"


@dataclass(frozen=True)
class Source:
    """An entry of the control plane that a reference may mean: its type, and whether its owner allows copies of it."""

    type: str = _OPAQUE
    labels: Mapping[str, str] | None = None

    @property
    def labelled(self) -> bool:
        """Whether its owner allows copies of it."""
        return (self.labels or {}).get(labels.PROPAGATE) == "true"


@dataclass(frozen=True)
class Copy:
    """One copy to make: read `keys` (all if empty) of the source, write them as `data` of the manifest.

    `inventory_key` is its stable place among a consumer's objects. The manifest holds everything but the data. `platform`: the source
    belongs to the platform, and a setting names it.
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
        """The name on the cluster."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True)
class Propagation:
    """A plan: what to copy, which references to rewrite (for `ReplicaInput.propagated`), and what is missing, in sentences."""

    copies: tuple[Copy, ...] = ()
    rewrites: Mapping[str, str] | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class PullSecret:
    """A docker config of the platform that `images.pullSecrets` names, for pods with images of this project."""

    name: str

    @property
    def inventory_key(self) -> str:
        """The key of its copy in an inventory."""
        return f"{inventory_keys.PULL_SECRET_PREFIX}{self.name}"

    @property
    def copy_name(self) -> str:
        """The name of its copy, in each namespace."""
        return names.copy_name(labels.SYSTEM_NAMESPACE, SECRET, self.name, ())

    def problem(self, secret_type: str | None) -> str:
        """Say why the Secret of that type (None: there is none) cannot be used; empty if it can."""
        if secret_type in _DOCKER_TYPES:
            return ""
        why = "does not exist" if secret_type is None else f"has type {secret_type}"
        return (
            f"Secret {labels.SYSTEM_NAMESPACE}/{self.name} {why}: setting images.pullSecrets names it; "
            f"apply it there with type {_DOCKER_TYPES[0]}, or take it out of the setting"
        )


def pull_secrets(settings: RenderSettings) -> list[Json]:
    """Give `imagePullSecrets` of a pod with an image of this project."""
    return [{"name": PullSecret(name).copy_name} for name in settings.pull_secrets]


def pull_secret_copy(wanted: PullSecret, secret_type: str, namespace: str, settings: RenderSettings) -> Copy:
    """Give the copy of a pull secret of the platform, beside the pods of what is in `namespace` on the control plane."""
    owner = Owner(SECRET, labels.SYSTEM_NAMESPACE, wanted.name, f"{SECRET}/{wanted.name}", 1)
    manifest = copy_manifest(SECRET, secret_type, workload_namespace(namespace, settings), wanted.copy_name)
    item = labelled_item(owner, wanted.inventory_key, components.SECRET, manifest)
    return Copy(wanted.inventory_key, SECRET, labels.SYSTEM_NAMESPACE, wanted.name, (), item.manifest, platform=True)


def plan(
    namespace: str,
    wanted: Iterable[Reference],
    sources: Mapping[str, Source],
    settings: RenderSettings,
) -> Propagation:
    """Decide per reference between a copy and the name as written.

    `sources` maps `Secret/<name>` and `ConfigMap/<name>` to what exists in `namespace` on the control plane.
    """
    mode = settings.secrets_propagation
    if mode == OFF:
        return Propagation(rewrites={})
    copies, rewrites, missing = [], {}, []
    for reference in wanted:
        source = sources.get(str(reference))
        if source is None:
            if mode == ALL and not reference.optional:
                missing.append(f"{reference.kind} {namespace}/{reference.name} does not exist, but the replica needs it")
            continue
        if mode == ALL or source.labelled:
            made = _copy(namespace, reference, source, settings)
            copies.append(made)
            rewrites[str(reference)] = made.name
    return Propagation(tuple(copies), rewrites, tuple(missing))


def copy_manifest(kind: str, secret_type: str, namespace: str, name: str) -> Json:
    """Give a Secret or ConfigMap without its data."""
    manifest: Json = {"apiVersion": apiversions.CORE, "kind": kind, "metadata": {"name": name, "namespace": namespace}}
    return {**manifest, "type": secret_type} if kind == SECRET else manifest


def _copy(namespace: str, reference: Reference, source: Source, settings: RenderSettings) -> Copy:
    keys = () if source.type in _DOCKER_TYPES else reference.keys
    # The keys are part of the identity: two replicas that need different keys would otherwise overwrite each other's copy without end.
    name = names.copy_name(namespace, reference.kind, reference.name, keys)
    # Shared by every replica that needs it, so it belongs to its source and not to one of them.
    owner = Owner(reference.kind, namespace, reference.name, str(reference), 1)
    manifest = copy_manifest(reference.kind, source.type, workload_namespace(namespace, settings), name)
    item = labelled_item(owner, reference.inventory_key, components.SECRET, manifest)
    return Copy(reference.inventory_key, reference.kind, namespace, reference.name, keys, item.manifest)
