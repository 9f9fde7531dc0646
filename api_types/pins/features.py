"""Features that a cluster can lack, and the definitions that each of them needs.

Probes of clusters, admission, placement and rendering read this table. So they agree on
what a feature needs, and every message names the version that allows it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api_types.pins import apiversions, charts

Tree = Mapping[str, Any]


@dataclass(frozen=True)
class Feature:
    """One feature.

    The cluster must serve `kind` in one of `api_versions`.

    Attributes:
        key: name of the feature in conditions and reports.
        field: the field of an engine that uses the feature.
        project: the software that provides the kind.
        since: the first release with which the feature works.
        setting: what to set, in addition, on a stack that Modelplane installs.
        list_field: field of the kind's spec that must allow more than one item.
        device_class: a DeviceClass that must exist. The definitions of a driver may be
            installed without the part of it that creates this DeviceClass.

    """

    key: str
    field: str
    kind: str
    api_versions: tuple[str, ...]
    project: str
    since: str
    setting: str = ""
    list_field: str = ""
    device_class: str = ""

    @property
    def remedy(self) -> str:
        """The next step of a person who administers the cluster."""
        setting = (
            f"set {self.setting} if Modelplane installs the stack, else "
            if self.setting
            else ""
        )
        return f"{setting}install {self.project} {self.since} or newer there"

    @property
    def need(self) -> str:
        """What a cluster without the feature lacks."""
        kind = f"{self.kind} ({' or '.join(self.api_versions)})"
        if self.list_field:
            return f"{kind} with several {self.list_field}"
        if self.device_class:
            return f"{kind} with DeviceClass {self.device_class}"
        return kind

    def lacking(self) -> str:
        """Say that a cluster lacks the feature, and what to do about it."""
        return f"{self.field} needs {self.need}: {self.remedy}"


_INFERENCE_EXTENSION = "the definitions of the Gateway API Inference Extension"

POOLS = Feature(
    key="inferencePools",
    field="routing through an endpoint picker",
    kind="InferencePool",
    api_versions=(apiversions.INFERENCE,),
    project=_INFERENCE_EXTENSION,
    since="v1.0.0",
)
DATA_PARALLEL = Feature(
    key="dataParallel",
    field="dataParallel",
    kind="InferencePool",
    api_versions=(apiversions.INFERENCE,),
    project=_INFERENCE_EXTENSION,
    since="v1.1.0",
    list_field="targetPorts",
)
MODEL_NAMES = Feature(
    key="modelNames",
    field="adapters[].modelNames",
    kind="InferenceModelRewrite",
    api_versions=apiversions.MODEL_REWRITES,
    project=_INFERENCE_EXTENSION,
    since="v1.2.0",
)
COMPUTE_DOMAIN = Feature(
    key="computeDomain",
    field="topology.computeDomain",
    kind="ComputeDomain",
    api_versions=(apiversions.COMPUTE_DOMAIN,),
    project="the NVIDIA DRA driver, with ComputeDomains enabled,",
    since=charts.NVIDIA_DRA_DRIVER.version,
    setting="stack.computeDomains",
    device_class="compute-domain-default-channel.nvidia.com",
)
MULTI_NODE = Feature(
    key="multiNode",
    field="a Leader with Workers",
    kind="LeaderWorkerSet",
    api_versions=(apiversions.LEADER_WORKER_SET,),
    project="LeaderWorkerSet",
    since=charts.LEADER_WORKER_SET.version,
)

FEATURES = (POOLS, DATA_PARALLEL, MODEL_NAMES, COMPUTE_DOMAIN, MULTI_NODE)
BY_KEY = {feature.key: feature for feature in FEATURES}


def used_features(engines: Iterable[Tree]) -> tuple[str, ...]:
    """Return the keys of the features that the engines of a template use.

    Every engine uses a pool. A cluster that routes to plain Services does not report
    pools as missing.
    """
    used = {POOLS.key: None}
    for engine in engines:
        used.update(dict.fromkeys(_of_engine(engine)))
    return tuple(feature.key for feature in FEATURES if feature.key in used)


def _of_engine(engine: Tree) -> Iterator[str]:
    if ((engine.get("dataParallel") or {}).get("size") or 1) > 1:
        yield DATA_PARALLEL.key
    if any(adapter.get("modelNames") for adapter in engine.get("adapters") or ()):
        yield MODEL_NAMES.key
    # An empty block has an effect, because all of its fields are optional.
    if (engine.get("topology") or {}).get("computeDomain") is not None:
        yield COMPUTE_DOMAIN.key
    if any(member.get("role") == "Leader" for member in engine.get("members") or ()):
        yield MULTI_NODE.key


def known(keys: Collection[str]) -> list[Feature]:
    """Return the features with these keys, in the order of the table.

    Other keys, as a newer worker may send them, are ignored.
    """
    return [feature for feature in FEATURES if feature.key in keys]
