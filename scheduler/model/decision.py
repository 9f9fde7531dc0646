"""The decision about one request: placements, evictions, conditions, and the reasons for what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.model.reasons import REPLACEMENT_BLOCKED, RESIZE_BLOCKED

# Required anti-affinity as replicas have it: (topology key, namespaces, labels) per term.
AntiAffinity = tuple[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A device request resolved to a DeviceClass (DRA) or an extended resource (device plugin), never both."""

    name: str
    device_class: str
    count: int
    selectors: tuple[str, ...] = ()
    resource_name: str = ""


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """A member on its pool.

    Without requests it claims nothing and costs no node. `need` is a digest of the requests it was placed for, `draw` the device
    entries one of its pods uses (name, count). `slots` are node numbers of its pods where devices are packed.
    """

    role: str
    pool: str
    requests: tuple[ResolvedRequest, ...] = ()
    worker_nodes: int = 1
    need: str = ""
    draw: tuple[tuple[str, int], ...] = ()
    pods_per_node: int = 1
    slots: tuple[int, ...] = ()

    @property
    def pods(self) -> int:
        """Pods of one copy."""
        return self.worker_nodes if self.role == "Worker" else 1


@dataclass(frozen=True, slots=True)
class EnginePlacement:
    """An engine on its pool; members in deployment order."""

    engine: str
    members: tuple[MemberPlacement, ...]
    copies: int = 1

    @property
    def pool(self) -> str:
        """The pool of the engine; with `spanPools` that of its first member."""
        return self.members[0].pool if self.members else ""


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of one replica.

    Attributes:
        uid: of the replica; a new one for Create and Replace.
        gateway_address: of the cluster now; "" means that no endpoint may be made.
        action: Keep, Create, Update or Replace.
        template: digest of the template that the replica shall carry.
        after: uids of own replicas whose objects must be gone before the new pods are applied.

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


@dataclass(frozen=True, slots=True)
class Eviction:
    """A replica that is evicted; `detail` says which check failed, `namespace` and `deployment` name its owner."""

    uid: str
    replica_name: str
    cluster: str
    reason: str
    detail: str = ""
    namespace: str = ""
    deployment: str = ""


@dataclass(frozen=True, slots=True)
class RetainedNote:
    """A replica that stays although a change is due: Drifted, ResizeBlocked, ReplacementBlocked, CapacityLost, Evicted."""

    reason: str
    replica_name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """So many clusters were refused for this reason; `code` is a filter code, `best` what the closest of them lacks."""

    code: str
    text: str
    count: int
    best: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why the next replica is not placed: every cluster counted once, under its first failing filter.

    `held` says why nothing may be placed at all, `preemption` why no replica was preempted, `gang` how much of a gang would fit, and
    `suggestion` what would make one more replica fit.
    """

    clusters: int = 0
    groups: tuple[ReasonGroup, ...] = ()
    held: str = ""
    preemption: str = ""
    gang: str = ""
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the deployment as this decision leaves it."""

    type: str
    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one request.

    Attributes:
        placements: sorted by (cluster, index); `shortfall` more were wanted.
        victims: replicas of other deployments that are preempted.
        more: steps are left that wait for the health of replicas; request again when it changes.
        waiting_since: since when it reserves capacity against those behind it, in ms; -1 when it does not.
        unfinished: how many decisions in a row, this one included, ended before their search for victims did; the next one goes on. 0 where
            it ended, or will not be continued.
        search_ended: the last of such decisions found nothing either.
        refused: (cluster, pool) that let a replica wait too long for admission; they are not used for a while.
        digest: over everything that matters; equal input gives an equal digest.

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
    conditions: tuple[Condition, ...] = ()
    more: bool = False
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
        """Whether the same request has to be decided again: the search for victims goes on, and nothing else asks for that."""
        return self.unfinished > 0 and not self.victims

    @property
    def waits_for_capacity(self) -> bool:
        """Whether more capacity would change the answer: a replica is missing, or a change is blocked for lack of free nodes."""
        return self.shortfall > 0 or any(note.reason in (RESIZE_BLOCKED, REPLACEMENT_BLOCKED) for note in self.notes)
