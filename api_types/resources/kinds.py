"""The table of kinds: their names, their writers, and the columns of their lists."""

from collections.abc import Sequence
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
class PrinterColumn:
    """One column of `get`: a title and JSON paths; the first path with a value counts."""

    title: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class ScalePaths:
    """JSON paths for reading and writing the scale subresource."""

    spec: str
    status: str
    selector: str


@dataclass(frozen=True)
class KindInfo:
    """Names and properties of one kind."""

    kind: str
    plural: str
    short: str
    namespaced: bool
    model: type[Manifest]
    columns: tuple[PrinterColumn, ...] = ()
    group: str = GROUP
    version: str = VERSION
    written_instead: str = ""
    """For kinds that the control plane writes: the kind that a user applies to get one.
    """
    scale: ScalePaths | None = None
    """None for kinds without a scale subresource."""
    shown_by: str = ""
    """For kinds without a workflow: the kind of the workflow that shows it by its own name."""
    home: str = ""
    """The namespace of all objects of a kind that the control plane writes into one.

    Requests for other namespaces are rejected.
    """

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
        """Whether `apply` accepts this kind."""
        return not self.written_instead


_MODEL_SOURCES = (".spec.huggingFace.repo", ".spec.oci.image", ".spec.s3.bucket")
READY = PrinterColumn("READY", (".status.conditions[?(@.type=='Ready')].status",))
_ADDRESS = ".status.address"
_GATEWAY_ADDRESS = ".status.gateway.address"

KINDS: tuple[KindInfo, ...] = (
    KindInfo(
        "InferenceClass",
        "inferenceclasses",
        "icl",
        namespaced=False,
        model=InferenceClass,
    ),
    KindInfo(
        "InferenceCluster",
        "inferenceclusters",
        "ic",
        namespaced=False,
        model=InferenceCluster,
        columns=(
            PrinterColumn("SOURCE", (".spec.cluster.source",)),
            PrinterColumn("GATEWAY", (_GATEWAY_ADDRESS,)),
        ),
    ),
    KindInfo(
        "InferenceGateway",
        "inferencegateways",
        "ig",
        namespaced=False,
        model=InferenceGateway,
        columns=(
            PrinterColumn("GATEWAY", (".spec.backend",)),
            PrinterColumn("ADDRESS", (_ADDRESS,)),
        ),
    ),
    KindInfo(
        "ModelDeployment",
        "modeldeployments",
        "md",
        namespaced=True,
        model=ModelDeployment,
        columns=(PrinterColumn("REPLICAS", (".status.replicas.ready",)),),
        scale=ScalePaths(
            spec=".spec.replicas",
            status=".status.replicas.total",
            selector=".status.selector",
        ),
    ),
    KindInfo(
        "ModelReplica",
        "modelreplicas",
        "mr",
        namespaced=True,
        model=ModelReplica,
        columns=(PrinterColumn("CLUSTER", (".spec.clusterName",)),),
        written_instead="ModelDeployment",
    ),
    KindInfo(
        "ModelService",
        "modelservices",
        "ms",
        namespaced=True,
        model=ModelService,
        columns=(
            PrinterColumn("ADDRESS", (_ADDRESS,)),
            PrinterColumn("ENDPOINTS", (".status.summary.ready",)),
            PrinterColumn("ENTRIES", (".status.summary.entries",)),
        ),
    ),
    KindInfo(
        "ModelEndpoint",
        "modelendpoints",
        "me",
        namespaced=True,
        model=ModelEndpoint,
        columns=(
            PrinterColumn("URL", (".spec.url",)),
            PrinterColumn("BACKEND", (".status.routing.backendName",)),
        ),
    ),
    KindInfo(
        "ModelCache",
        "modelcaches",
        "mc",
        namespaced=True,
        model=ModelCache,
        columns=(
            PrinterColumn("SOURCE", _MODEL_SOURCES),
            PrinterColumn("READY", (".status.summary.ready",)),
        ),
    ),
    KindInfo(
        "ServingStack",
        "servingstacks",
        "ss",
        namespaced=True,
        model=ServingStack,
        columns=(PrinterColumn("GATEWAY", (_GATEWAY_ADDRESS,)),),
        group=INFRASTRUCTURE_GROUP,
        written_instead="InferenceCluster",
        shown_by="InferenceCluster",
        home=SYSTEM_NAMESPACE,
    ),
)

# Kinds with their own workflow of the type `kind`.
SERVED = tuple(info for info in KINDS if not info.shown_by)
BY_KIND = {info.kind: info for info in KINDS}
_BY_NAME = {
    **{info.singular: info for info in KINDS},
    **{info.plural: info for info in KINDS},
    **{info.short: info for info in KINDS},
}

# Kinds of earlier versions, and the hint for a user who writes one.
FORMER_KINDS = {
    "ModelPlacement": "it was renamed ModelReplica",
    "InferenceEnvironment": "it was renamed InferenceCluster",
    **dict.fromkeys(
        ("Model", "ClusterModel"),
        "it was removed; name the model in the engine's args, "
        "and stage weights with a ModelCache",
    ),
    **dict.fromkeys(
        ("GKECluster", "EKSCluster", "AKSCluster", "NebiusCluster", "VultrCluster"),
        "it is internal; write an InferenceCluster",
    ),
}


class UnknownKind(ValueError):
    """No kind has that name."""


def find_kind(text: str) -> KindInfo:
    """Return a kind by its name in any case, plural or short name.

    Raises:
        UnknownKind: no kind has that name; the message has the nearest one.

    """
    found = _BY_NAME.get(text.lower())
    if found:
        return found
    raise UnknownKind(f'unknown kind "{text}"{_unknown_kind_hint(text)}')


def _unknown_kind_hint(text: str) -> str:
    for kind, advice in FORMER_KINDS.items():
        if kind.lower() == text.lower():
            return f"; {advice}"
    close = nearest(text.lower(), _BY_NAME)
    if close:
        return f", did you mean {_BY_NAME[close].kind}?"
    return f"; the kinds are {', '.join(BY_KIND)}"


def describe_unknown(api_version: str, kind: str) -> tuple[str, str]:
    """Return the field and the problem of a document of an unknown kind or version."""
    known = BY_KIND.get(kind)
    if known:
        return (
            "apiVersion",
            f'must be {known.api_version} for {kind}, got "{api_version}"',
        )
    former = FORMER_KINDS.get(kind)
    if former:
        return "kind", f"unknown kind; {former}"
    close = nearest(kind.lower(), {info.singular: None for info in KINDS})
    hint = f"did you mean {_BY_NAME[close].kind}? " if close else ""
    known_kinds = ", ".join(BY_KIND)
    return (
        "kind",
        (
            f'unknown kind "{kind}" in {api_version}; {hint}'
            f"Known kinds: {known_kinds}, and v1 Secret and ConfigMap"
        ),
    )


def columns_of(kind: KindInfo) -> Sequence[PrinterColumn]:
    """Return the columns between name and age. The last one is READY."""
    own = [column for column in kind.columns if column.title != READY.title]
    ready_of_kind = [column for column in kind.columns if column.title == READY.title]
    # A ModelCache has a READY column of its own, such as `2/3`.
    return [*own, *(ready_of_kind or [READY])]
