"""What rendering knows of the cluster, the replica and the cache.

Everything is passed by value: a renderer that read a cluster could give two answers to one question.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from api_types.messages.cluster_work import CacheMount, ClusterFacts
from api_types.pins import apiversions

_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_ROUTINGS = ("pool", "service")
_SCHEDULERS = ("none", "kai", "kueue")
_MESHES = ("none", "istio", "gke")
# The facts of a provisioned cluster with the whole serving stack, for a cluster without a connection.
_ASSUMED = {"kubernetes_version": "1.35", "dra_version": apiversions.DRA_VERSIONS[0], "apis": sorted(apiversions.STACK)}


class InvalidFacts(ValueError):
    """The facts of a cluster are none that rendering supports; `problems` holds all of them."""

    def __init__(self, cluster: str, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__(f"facts of cluster {cluster!r}: " + "; ".join(problems))


@dataclass(frozen=True)
class ClusterInput:
    """One inference cluster as rendering sees it.

    `cache_claims` maps `<namespace>/<cache>`, or a bare `<cache>`, to the volume claim that is ready here. `queues` holds the names of the
    in-cluster scheduler's queues, None while they are unknown.
    """

    name: str
    facts: ClusterFacts
    cache_claims: Mapping[str, str] = field(default_factory=dict)
    queues: frozenset[str] | None = None

    def __post_init__(self) -> None:
        facts = self.facts
        problems = [
            f"{name} is {value!r}, must be one of {', '.join(repr(choice) for choice in choices)}"
            for name, value, choices in (
                ("draVersion", facts.dra_version, (*apiversions.DRA_VERSIONS, "")),
                ("routing", facts.routing, _ROUTINGS),
                ("schedulerType", facts.scheduler_type, _SCHEDULERS),
                ("meshProvider", facts.mesh_provider, _MESHES),
            )
            if value not in choices
        ]
        if not _VERSION.match(facts.kubernetes_version):
            problems.append(f"kubernetesVersion is {facts.kubernetes_version!r}, must look like '1.35'")
        if problems:
            raise InvalidFacts(self.name, tuple(problems))

    @classmethod
    def assumed(cls, name: str, cache_claims: Mapping[str, str] | None = None, **known: Any) -> "ClusterInput":
        """Give a cluster without a connection: what is not `known` of its facts is as on a provisioned one."""
        try:
            facts = ClusterFacts(**{**_ASSUMED, **known})
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False, include_url=False)]
            raise InvalidFacts(name, tuple(problems)) from None
        return cls(name, facts, cache_claims or {})

    def at_least(self, major: int, minor: int) -> bool:
        """Tell whether the cluster runs this Kubernetes release or a newer one."""
        found = _VERSION.match(self.facts.kubernetes_version)
        return found is not None and (int(found[1]), int(found[2])) >= (major, minor)


@dataclass(frozen=True)
class ReplicaInput:
    """One ModelReplica to render: identity, wire-form spec, and what others resolved for it.

    `spec` is the ModelReplica spec in camelCase. `cache_claim` is the claim of the cache that is ready on the cluster, of `cache_gib` GiB;
    empty and 0 while unknown; `adapter_claims` has those of LoRA adapters by cache, and `mounts`, by cache too, how claims are mounted
    where that is not as usual. `propagated` maps `Secret/<name>` or `ConfigMap/<name>`
    to the name of its copy on the cluster, `propagated_hash` is a keyed hash over the copied data. `picker_flags` are extra flags of the
    endpoint picker.
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
    """One ModelCache on one cluster: identity, wire-form spec, and the state of its staging.

    `revision` is the resolved commit or digest; empty means the literal one of the spec. `ready`: the artifact is staged here, so that only
    its volume is wanted. `credential_missing`: the named Secret, or its key, does not exist yet, so that staging has to wait.
    `volume_class`, `volume_access` and `volume_size` (a quantity) are those of the existing volume, where they cannot follow the spec, else
    empty.
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
