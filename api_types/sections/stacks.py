"""Settings of serving stacks and of the gateways of clusters."""

from typing import Literal

from pydantic import Field

from api_types.limits import UPGRADES_AT_ONCE_MAX
from api_types.sections.base import SettingsSection
from api_types.setting_types import (
    Affinity,
    ChartMirror,
    ChartValues,
    ChartVersions,
    ObjectName,
    OptionalObjectName,
    Tolerations,
)

_TOLERATIONS_MAX = 16


class StackSettings(SettingsSection):
    """Installation of serving stacks with Helm."""

    helm: str = Field(
        default="",
        description=(
            "Path of the helm program, 3.22 or 4. Empty: the program on PATH. It "
            "is required for clusters whose serving stack the control plane "
            "installs."
        ),
    )
    chart_mirror: ChartMirror = Field(
        default="",
        description=(
            "Repository that has every chart, instead of the pinned repositories: "
            "`oci://registry.example.com/charts`, or a URL with an index. It is "
            "read without a login."
        ),
    )
    helm_concurrency: int = Field(
        default=8,
        ge=1,
        description="Concurrent Helm processes of one worker; at most 3 for one cluster.",
    )
    versions: ChartVersions = Field(
        default_factory=dict,
        description=(
            "Versions of charts that differ from those of this release, by "
            "component (`envoyGateway: v1.8.2`; also `certManager`, `prometheus`, "
            "`leaderWorkerSet`, `nodeFeatureDiscovery`, `nvidiaDraDriver`, "
            "`aiGateway`). `inferenceExtension` is part of the release, and "
            "`gatewayApi` is the version that the chart of Envoy Gateway is expected to "
            "bring. A change upgrades every stack."
        ),
    )
    values: ChartValues = Field(
        default_factory=dict,
        description=(
            "Values of charts that replace those of this release, by component "
            "(`prometheus: {prometheusOperator: {resources: ...}}`; the names are "
            "those of `versions`, and `aiGatewayCrds`). Objects are merged and lists "
            "replaced. They are visible in Temporal: use no secrets. A change upgrades "
            "every stack."
        ),
    )
    tolerations: Tolerations = Field(
        default_factory=list,
        max_length=_TOLERATIONS_MAX,
        description=(
            "Taints that the pods of stacks, of gateways and of endpoint pickers "
            "tolerate, as in a pod: `[{key: dedicated, operator: Exists}]`. A cluster "
            "whose nodes all have taints needs them."
        ),
    )
    priority_class_name: OptionalObjectName = Field(
        default="",
        description=(
            "Priority class of these pods; it must exist on every cluster. The charts "
            "of LeaderWorkerSet and of the AI gateway support none, and the pods of the "
            "DRA driver keep theirs."
        ),
    )
    affinity: Affinity = Field(
        default_factory=dict,
        description=(
            "Affinity of these pods, as in a pod. Pods that run on every node or on GPU "
            "nodes do not get it."
        ),
    )
    upgrade_parallelism: int = Field(
        default=1,
        ge=1,
        le=UPGRADES_AT_ONCE_MAX,
        description=(
            "Number of clusters whose stacks are upgraded at the same time. If "
            "workers have different values, the smallest applies."
        ),
    )
    allow_untested_pair: bool = Field(
        default=False,
        description=(
            "Allow a version of Envoy Gateway that was not tested with the "
            "version of the AI gateway."
        ),
    )
    gateway_class: ObjectName = Field(
        default="envoy",
        description="The GatewayClass of a stack. It must not exist before.",
    )
    compute_domains: bool = Field(
        default=False,
        description=(
            "Enable ComputeDomains in the NVIDIA DRA driver, for "
            "`topology.computeDomain`. All GPU nodes of all clusters with a managed "
            "stack need multi-node NVLink, or a GPU driver with which the plugin of "
            "ComputeDomains starts without it: it may keep the driver of other nodes "
            "from becoming ready."
        ),
    )
    longest_generation: int = Field(
        default=3600,
        ge=60,
        le=86400,
        description=(
            "Time in seconds that a stream continues after routes have changed, "
            "or while its proxy or its endpoint picker terminates. A change restarts "
            "the proxies of each cluster once, and cuts streams that are longer than "
            "the previous value."
        ),
    )


class GatewaySettings(SettingsSection):
    """Access to the gateways of clusters."""

    scheme: Literal["http", "https"] = Field(
        default="http",
        description=(
            "Scheme of the addresses of endpoints: `https` if the gateways of "
            "clusters have certificates. It is read when a cluster connects."
        ),
    )
