"""The facts about the cluster, the replica and the cache that rendering uses.

All facts are passed by value. If a renderer read a cluster, one input could have two
results.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from api_types.messages.cluster_work import CacheMount, ClusterFacts
from api_types.pins import apiversions
from api_types.pins.features import Feature

_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_ROUTINGS = ("pool", "service")
_SCHEDULERS = ("none", "kai", "kueue")
_MESHES = ("none", "istio", "gke")
# Facts of a provisioned cluster with the whole serving stack. They are used to render
# without a connection.
_ASSUMED = {
    "kubernetes_version": "1.35",
    "dra_version": apiversions.DRA_VERSIONS[0],
    "apis": sorted(apiversions.STACK),
}


class InvalidFacts(ValueError):
    """The facts of a cluster are not supported by rendering.

    `problems` lists the reasons.
    """

    def __init__(self, cluster: str, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__(f"facts of cluster {cluster!r}: " + "; ".join(problems))


@dataclass(frozen=True)
class ClusterInput:
    """The facts of one inference cluster.

    `cache_claims` maps `<namespace>/<cache>`, or a bare `<cache>`, to the cache's ready
    volume claim on the cluster. `queues` contains the names of the in-cluster
    scheduler's queues, or is None while they are unknown.
    """

    name: str
    facts: ClusterFacts
    cache_claims: Mapping[str, str] = field(default_factory=dict)
    queues: frozenset[str] | None = None

    def __post_init__(self) -> None:
        facts = self.facts
        checks = (
            ("draVersion", facts.dra_version, (*apiversions.DRA_VERSIONS, "")),
            ("routing", facts.routing, _ROUTINGS),
            ("schedulerType", facts.scheduler_type, _SCHEDULERS),
            ("meshProvider", facts.mesh_provider, _MESHES),
        )
        problems = []
        for name, value, choices in checks:
            if value not in choices:
                allowed = ", ".join(map(repr, choices))
                problems.append(f"{name} is {value!r}, must be one of {allowed}")
        if not _VERSION.match(facts.kubernetes_version):
            problems.append(
                f"kubernetesVersion is {facts.kubernetes_version!r}, must look like '1.35'"
            )
        if problems:
            raise InvalidFacts(self.name, tuple(problems))

    @classmethod
    def assumed(
        cls, name: str, cache_claims: Mapping[str, str] | None = None, **known: Any
    ) -> "ClusterInput":
        """Return a cluster without a connection.

        Facts that are not in `known` are those of a provisioned cluster.
        """
        try:
            facts = ClusterFacts(**{**_ASSUMED, **known})
        except ValidationError as error:
            problems = [
                f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
                for one in error.errors(include_input=False, include_url=False)
            ]
            raise InvalidFacts(name, tuple(problems)) from None
        return cls(name, facts, cache_claims or {})

    def lacks(self, feature: Feature) -> bool:
        """Return whether the cluster certainly lacks what a feature needs."""
        facts = self.facts
        return feature.key in facts.missing_features or not any(
            version in facts.apis for version in feature.api_versions
        )

    def at_least(self, major: int, minor: int) -> bool:
        """Return whether the cluster runs this Kubernetes release or a newer one."""
        found = _VERSION.match(self.facts.kubernetes_version)
        return found is not None and (int(found[1]), int(found[2])) >= (major, minor)


@dataclass(frozen=True)
class ReplicaInput:
    """One ModelReplica to render: identity, spec, and resolved inputs.

    - `spec`: the ModelReplica spec in camelCase.
    - `cache_claim`: the ready claim of the cache on the cluster, with `cache_gib` GiB.
      They are empty and 0 while they are unknown.
    - `adapter_claims`: the claims of LoRA adapters, by cache.
    - `mounts`: the caches that are not mounted as one claim for all nodes, by cache.
    - `propagated`: maps `Secret/<name>` or `ConfigMap/<name>` to the name of its copy
      on the cluster.
    - `propagated_hash`: a keyed hash of the copied data.
    - `picker_flags`: extra flags of the endpoint picker.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    deployment: str
    cluster: str
    index: int
    spec: Mapping[str, Any]
    cache_claim: str = ""
    cache_gib: int = 0
    adapter_claims: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, CacheMount] = field(default_factory=dict)
    propagated: Mapping[str, str] = field(default_factory=dict)
    propagated_hash: str = ""
    picker_flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheInput:
    """One ModelCache on one cluster: identity, spec, and the state of its staging.

    - `revision`: the resolved commit or digest; empty means the literal revision of the
      spec.
    - `ready`: the artifact is staged on the cluster, so only its volume is rendered.
    - `credential_missing`: the named Secret or its key does not exist yet, so staging
      must wait.
    - `volume_class`, `volume_access`, `volume_size` (a quantity): the values of an
      existing volume that cannot be changed to those of the spec, else empty.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    cluster: str
    spec: Mapping[str, Any]
    revision: str = ""
    ready: bool = False
    credential_missing: bool = False
    volume_class: str = ""
    volume_access: str = ""
    volume_size: str = ""
