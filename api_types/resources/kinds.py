"""The table of kinds: the names of each kind, who may write it, and the columns of its list."""

from dataclasses import dataclass

from api_types.hints import nearest
from api_types.labels import GROUP, INFRASTRUCTURE_GROUP, SYSTEM_NAMESPACE
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.resources.inference_gateway import InferenceGateway
from api_types.resources.model_cache import ModelCache
from api_types.resources.model_deployment import ModelDeployment
from api_types.resources.model_endpoint import ModelEndpoint
from api_types.resources.model_replica import ModelReplica
from api_types.resources.model_service import ModelService
from api_types.resources.parts.base_types import VERSION, Manifest
from api_types.resources.serving_stack import ServingStack


@dataclass(frozen=True)
class Column:
    """One column of `get`: a title and the JSON path of its value; the first path with a value counts."""

    title: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class ScalePaths:
    """Where the scale subresource reads and writes, as JSON paths."""

    spec: str
    status: str
    selector: str


@dataclass(frozen=True)
class KindInfo:
    """What is known of one kind."""

    kind: str
    plural: str
    short: str
    namespaced: bool
    model: type[Manifest]
    columns: tuple[Column, ...] = ()
    group: str = GROUP
    version: str = VERSION
    written_instead: str = ""
    """For kinds that the control plane writes: the kind that a user applies to get one."""
    scale: ScalePaths | None = None
    """None for kinds without a scale subresource."""
    shown_by: str = ""
    """For kinds without a workflow: the kind whose workflow shows it, under its own name."""
    home: str = ""
    """The namespace of all objects of a kind that the control plane writes into one; no other can be asked for."""

    @property
    def api_version(self) -> str:
        """Group and version."""
        return f"{self.group}/{self.version}"

    @property
    def singular(self) -> str:
        """The kind in lower case: the prefix of its workflow ids."""
        return self.kind.lower()

    @property
    def user_may_apply(self) -> bool:
        """Whether `apply` takes this kind."""
        return not self.written_instead


_MODEL_SOURCES = (".spec.huggingFace.repo", ".spec.oci.image", ".spec.s3.bucket")
READY = Column("READY", (".status.conditions[?(@.type=='Ready')].status",))
_ADDRESS = ".status.address"
_GATEWAY_ADDRESS = ".status.gateway.address"

KINDS: tuple[KindInfo, ...] = (
    KindInfo("InferenceClass", "inferenceclasses", "icl", namespaced=False, model=InferenceClass),
    KindInfo(
        "InferenceCluster",
        "inferenceclusters",
        "ic",
        namespaced=False,
        model=InferenceCluster,
        columns=(Column("SOURCE", (".spec.cluster.source",)), Column("GATEWAY", (_GATEWAY_ADDRESS,))),
    ),
    KindInfo(
        "InferenceGateway",
        "inferencegateways",
        "ig",
        namespaced=False,
        model=InferenceGateway,
        columns=(Column("GATEWAY", (".spec.backend",)), Column("ADDRESS", (_ADDRESS,))),
    ),
    KindInfo(
        "ModelDeployment",
        "modeldeployments",
        "md",
        namespaced=True,
        model=ModelDeployment,
        columns=(Column("REPLICAS", (".status.replicas.ready",)),),
        scale=ScalePaths(spec=".spec.replicas", status=".status.replicas.total", selector=".status.selector"),
    ),
    KindInfo(
        "ModelReplica",
        "modelreplicas",
        "mr",
        namespaced=True,
        model=ModelReplica,
        columns=(Column("CLUSTER", (".spec.clusterName",)),),
        written_instead="ModelDeployment",
    ),
    KindInfo(
        "ModelService",
        "modelservices",
        "ms",
        namespaced=True,
        model=ModelService,
        columns=(
            Column("ADDRESS", (_ADDRESS,)),
            Column("ENDPOINTS", (".status.summary.ready",)),
            Column("ENTRIES", (".status.summary.entries",)),
        ),
    ),
    KindInfo(
        "ModelEndpoint",
        "modelendpoints",
        "me",
        namespaced=True,
        model=ModelEndpoint,
        columns=(Column("URL", (".spec.url",)), Column("BACKEND", (".status.routing.backendName",))),
    ),
    KindInfo(
        "ModelCache",
        "modelcaches",
        "mc",
        namespaced=True,
        model=ModelCache,
        columns=(
            Column("SOURCE", _MODEL_SOURCES),
            Column("READY", (".status.summary.ready",)),
        ),
    ),
    KindInfo(
        "ServingStack",
        "servingstacks",
        "ss",
        namespaced=True,
        model=ServingStack,
        columns=(Column("GATEWAY", (_GATEWAY_ADDRESS,)),),
        group=INFRASTRUCTURE_GROUP,
        written_instead="InferenceCluster",
        shown_by="InferenceCluster",
        home=SYSTEM_NAMESPACE,
    ),
)

# Those with a workflow of their own, of the type `kind`.
SERVED = tuple(info for info in KINDS if not info.shown_by)
BY_KIND = {info.kind: info for info in KINDS}
_BY_NAME = {name: info for info in KINDS for name in (info.singular, info.plural, info.short)}

# Kinds of earlier versions, and the hint for a user who writes one.
FORMER_KINDS = {
    "ModelPlacement": "it was renamed ModelReplica",
    "InferenceEnvironment": "it was renamed InferenceCluster",
    "Model": "it was removed; name the model in the engine's args, and stage weights with a ModelCache",
    "ClusterModel": "it was removed; name the model in the engine's args, and stage weights with a ModelCache",
    **dict.fromkeys(
        ("GKECluster", "EKSCluster", "AKSCluster", "NebiusCluster", "VultrCluster"),
        "it is internal; write an InferenceCluster",
    ),
}


class UnknownKind(ValueError):
    """There is no kind of that name."""


def find_kind(text: str) -> KindInfo:
    """Find a kind by its name in any case, plural or short name; raises UnknownKind with the nearest name."""
    found = _BY_NAME.get(text.lower())
    if found:
        return found
    raise UnknownKind(f'unknown kind "{text}"{_unknown_kind_hint(text)}')


def _unknown_kind_hint(text: str) -> str:
    former = next((advice for kind, advice in FORMER_KINDS.items() if kind.lower() == text.lower()), "")
    if former:
        return f"; {former}"
    close = nearest(text.lower(), _BY_NAME)
    if close:
        return f", did you mean {_BY_NAME[close].kind}?"
    return f"; the kinds are {', '.join(BY_KIND)}"


def describe_unknown(api_version: str, kind: str) -> tuple[str, str]:
    """Give the field and the problem of a document whose `apiVersion` and `kind` select no model."""
    known = BY_KIND.get(kind)
    if known:
        return "apiVersion", f'must be {known.api_version} for {kind}, got "{api_version}"'
    former = FORMER_KINDS.get(kind)
    if former:
        return "kind", f"unknown kind; {former}"
    close = nearest(kind.lower(), {info.singular: None for info in KINDS})
    hint = f"did you mean {_BY_NAME[close].kind}? " if close else ""
    return "kind", f'unknown kind "{kind}" in {api_version}; {hint}Known kinds: {", ".join(BY_KIND)}, and v1 Secret and ConfigMap'
