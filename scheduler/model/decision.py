"""The decision about one request: placements, evictions, conditions, diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.model.reasons import REPLACEMENT_BLOCKED, RESIZE_BLOCKED

# Required anti-affinity of a replica: (topology key, namespaces, labels) per term.
AntiAffinity = tuple[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True, slots=True)
class ResolvedDeviceRequest:
    """A device request, resolved to a DeviceClass (DRA) or an extended resource.

    An extended resource belongs to a device plugin. A request never has both.
    """

    name: str
    device_class: str
    count: int
    selectors: tuple[str, ...] = ()
    resource_name: str = ""


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """A member on its pool.

    A member without requests claims no devices and costs no node.

    Attributes:
        need: digest of the requests that the member was placed for.
        draw: the device entries that one pod uses, as (name, count).
        slots: node numbers of the pods, if devices are packed.

    """

    role: str
    pool: str
    requests: tuple[ResolvedDeviceRequest, ...] = ()
    worker_nodes: int = 1
    need: str = ""
    draw: tuple[tuple[str, int], ...] = ()
    pods_per_node: int = 1
    slots: tuple[int, ...] = ()

    @property
    def pods(self) -> int:
        """Return the number of pods of one copy."""
        return self.worker_nodes if self.role == "Worker" else 1


@dataclass(frozen=True, slots=True)
class EnginePlacement:
    """An engine on its pool, with its members in deployment order."""

    engine: str
    members: tuple[MemberPlacement, ...]
    copies: int = 1

    @property
    def pool(self) -> str:
        """Return the pool of the engine, or the first member's pool with `spanPools`."""
        return self.members[0].pool if self.members else ""


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of one replica.

    Attributes:
        uid: uid of the replica; Create and Replace make a new one.
        gateway_address: current address of the cluster's gateway; without one, no
            endpoint may be created.
        action: Keep, Create, Update or Replace.
        template: digest of the template that the replica must carry.
        after: uids of the deployment's replicas whose objects must be gone before the
            new pods are applied.
        held: the charge of an updated replica while its old pods may run, as in its
            ledger entry.
        waits_for_part: whether `after` has only this replica's part of the replicas
            that leave for its deployment.

    """

    cluster: str
    index: int
    replica_name: str
    uid: str
    action: str
    engines: tuple[EnginePlacement, ...]
    gateway_address: str = ""
    template: str = ""
    name_counter: int = 0
    reuse: tuple[tuple[str, int], ...] = ()
    after: tuple[str, ...] = ()
    held: tuple[EnginePlacement, ...] = ()
    waits_for_part: bool = False


@dataclass(frozen=True, slots=True)
class Eviction:
    """The eviction of a replica.

    `detail` names the check that failed. `namespace` and `deployment` identify the
    owner.
    """

    uid: str
    replica_name: str
    cluster: str
    reason: str
    detail: str = ""
    namespace: str = ""
    deployment: str = ""


@dataclass(frozen=True, slots=True)
class RetainedNote:
    """A replica that is kept although a change is due.

    `reason` is Drifted, ResizeBlocked, ReplacementBlocked, CapacityLost or Evicted.
    """

    reason: str
    replica_name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """The number of clusters that were rejected for one reason.

    `code` is a filter code. `best` describes what the closest of these clusters lacks.
    """

    code: str
    text: str
    count: int
    best: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why the next replica is not placed.

    Every cluster counts once, under the first filter that rejects it.

    Attributes:
        held: why no replica may be placed at all.
        preemption: why no replica was preempted.
        gang: how much of a gang would fit.
        suggestion: a change that would make one more replica fit.

    """

    clusters: int = 0
    groups: tuple[ReasonGroup, ...] = ()
    held: str = ""
    preemption: str = ""
    gang: str = ""
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class DecidedCondition:
    """A condition of the deployment after this decision."""

    type: str
    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one request.

    Attributes:
        placements: sorted by (cluster, index).
        shortfall: the number of wanted replicas without a placement.
        victims: replicas of other deployments that are preempted.
        more: whether further steps wait for the health of replicas; request again when it
            changes.
        drain_deadline: when the drain budget stops protecting a replica, in ms; 0 if it
            protects none. Request again then.
        waiting_since: since when the deployment reserves capacity, in ms; -1 if it does
            not.
        unfinished: number of decisions in a row, including this one, that ended before
            their search for victims did. The next decision continues the search. 0 if
            the search ended or will not be continued.
        search_ended: whether the last of these decisions found no victims either.
        refused: (cluster, pool) pairs where a replica waited too long for admission;
            they are not used for a while.
        digest: digest of all relevant inputs; equal inputs have equal digests.

    """

    request_id: str
    namespace: str
    deployment: str
    desired: int
    placements: tuple[Placement, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    victims: tuple[Eviction, ...] = ()
    shortfall: int = 0
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    notes: tuple[RetainedNote, ...] = ()
    conditions: tuple[DecidedCondition, ...] = ()
    more: bool = False
    drain_deadline: int = 0
    digest: str = ""
    scheduler_version: str = ""
    message: str = ""
    priority: int = 0
    now: int = 0
    dry_run: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    min_available: int = 0
    waiting_since: int = -1
    deployment_uid: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    avoids: AntiAffinity = ()
    priority_class: str = ""
    unfinished: int = 0
    search_ended: bool = False

    @property
    def search_goes_on(self) -> bool:
        """Return whether the request must be decided again to continue its search.

        Nothing else triggers that decision.
        """
        return self.unfinished > 0 and not self.victims

    @property
    def waits_for_capacity(self) -> bool:
        """Return whether more capacity would change the decision.

        This is the case if a replica is missing, or if too few free nodes block a
        change.
        """
        return self.shortfall > 0 or any(
            note.reason in (RESIZE_BLOCKED, REPLACEMENT_BLOCKED) for note in self.notes
        )
