"""An in-memory cloud that follows a script.

It covers only the protocol between CloudCluster and its activities. Objects exist at
once and become ready after some polls. A script keeps them pending, breaks them,
rejects calls, loses responses, or hides objects. Other fakes imitate the responses of
real clouds.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from activities.clouds.desired.owner import owner_named
from activities.clouds.desired.plan import Desired
from activities.clouds.eks.wanted.inputs import EksFacts
from activities.clouds.eks.wanted.objects import eks_objects
from activities.clouds.gke.wanted.inputs import GkeFacts
from activities.clouds.gke.wanted.objects import gke_objects
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    HealthIssue,
    ObjectHandler,
    ObjectWork,
    State,
)
from activities.clouds.provider import ApiServerEndpoint, BearerToken
from api_types.errors import (
    CredentialsInvalid,
    Dependency,
    ModelplaneError,
    ServerError,
)
from api_types.messages.clouds import (
    IN_CLUSTER,
    AuditCloud,
    CloudAccount,
    Facts,
    Leftover,
    WorkClass,
)
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.sections.clouds import EksSettings, GkeSettings

WORK: Mapping[str, WorkClass] = {
    "Cluster": "ControlPlane",
    "NodePool": "NodePool",
    "Nodegroup": "NodePool",
    "NatGateway": "Medium",
}
PROJECT = "acme-ml"
ROLE = "arn:aws:iam::123456789012:role/provisioner"
GOOD = "a credential"
OTHER = "another"
"""The owner of objects that do not belong to the cluster."""


@dataclass
class CloudThing:
    key: str
    kind: str
    id: str
    owner: str
    token: str
    content: str
    needs: tuple[str, ...]
    looks: int = 0
    state: State = State.PENDING
    reason: str = ""
    cause: type[ModelplaneError] | None = None


@dataclass
class ScriptedCloud:
    """The objects of all clusters at a cloud, and the script.

    - `refuse`: errors by operation and key; each is raised once, before any effect
    - `lose`: how many responses to lose by operation and key, after the effect
    - `hold`: keys of objects that stay pending
    - `broken`: keys of objects that fail, with the number of failures and the cause
    - `replaced`: keys of objects that cannot be changed in place
    - `health`: problems that the cloud reports of existing objects, by key
    - `stripped`: keys of objects that lost the mark of their owner
    - `shut`: reject the credential
    - `leftovers`: findings of audits; a sweep removes them
    """

    polls: int = 1
    things: dict[str, CloudThing] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    refuse: dict[tuple[str, str], list[Exception]] = field(default_factory=dict)
    lose: dict[tuple[str, str], int] = field(default_factory=dict)
    hold: set[str] = field(default_factory=set)
    broken: dict[str, tuple[int, type[ModelplaneError] | None]] = field(
        default_factory=dict
    )
    replaced: set[str] = field(default_factory=set)
    health: dict[str, HealthIssue] = field(default_factory=dict)
    stripped: set[str] = field(default_factory=set)
    shut: bool = False
    leftovers: list[Leftover] = field(default_factory=list)
    emptied: set[bool] = field(default_factory=set)
    """The `emptied` flags of all audits: whether users have no objects in the cluster.
    """
    looks: Counter[str] = field(default_factory=Counter)
    running: int = 0
    most_at_once: dict[str, int] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _made: int = 0
    ids: dict[str, str] = field(default_factory=dict)
    """The last id of each key."""

    def open(self, credential: str, region: str) -> "ScriptedProvider":
        """Open a provider, as a worker does.

        Raises CredentialsInvalid for any credential but GOOD.
        """
        if credential != GOOD:
            raise CredentialsInvalid("the credential is malformed")
        return ScriptedProvider(self, region)

    def written(self, operation: str) -> list[str]:
        """Return the keys of all calls of an operation, in order."""
        return [key for called, key in self.calls if called == operation]

    def call(self, operation: str, key: str) -> None:
        """Record a call; raise the next error of the script."""
        if self.shut:
            raise CredentialsInvalid("the security token is not valid")
        self.calls.append((operation, key))
        if errors := self.refuse.get((operation, key)):
            raise errors.pop(0)

    def lost(self, operation: str, key: str) -> None:
        """Raise ServerError if the script loses this response.

        The call has had its effect.
        """
        if self.lose.get((operation, key), 0) > 0:
            self.lose[operation, key] -= 1
            raise ServerError("the answer was lost")


@dataclass
class ScriptedHandler:
    """The handler of one kind of object."""

    cloud: ScriptedCloud
    provider: str

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """See `ObjectHandler`."""
        key = wanted.object.key
        with self.cloud._lock:
            if self.cloud.shut:
                raise CredentialsInvalid("the security token is not valid")
            self.cloud.looks[key] += 1
            if errors := self.cloud.refuse.get(("look", key)):
                raise errors.pop(0)
            thing = self.cloud.things.get(key)
            if thing is None:
                return ABSENT
            if thing.owner != wanted.owner.digits:
                return CloudObservation(
                    State.FOREIGN, id=thing.id, reason=f"owner {thing.owner}"
                )
            if key in self.cloud.stripped:
                text = f"{thing.id} does not have the tag owner; restore with `tag`"
                return CloudObservation(State.FOREIGN, thing.id, unmarked=text)
            return self._found(thing, wanted)

    def _found(self, thing: CloudThing, wanted: ObjectWork) -> CloudObservation:
        thing.looks += 1
        if thing.state is State.DELETING:
            if thing.key not in self.cloud.hold:
                self._remove(thing)
                return ABSENT
            return CloudObservation(
                State.DELETING, id=thing.id, reason="status DELETING"
            )
        if (
            thing.state is State.PENDING
            and thing.looks > self.cloud.polls
            and thing.key not in self.cloud.hold
        ):
            times, cause = self.cloud.broken.get(thing.key, (0, None))
            if times > 0:
                self.cloud.broken[thing.key] = (times - 1, cause)
                thing.state, thing.cause, thing.reason = (
                    State.BROKEN,
                    cause,
                    "status CREATE_FAILED: no machines",
                )
            else:
                thing.state = State.READY
        facts = {"id": thing.id}
        for call in wanted.object.calls:
            facts |= {name: f"{thing.id}-{name}" for name in call.facts if name != "id"}
        if thing.state is State.READY and thing.content != repr(wanted.object.calls):
            if thing.key in self.cloud.replaced:
                return CloudObservation(
                    State.DIFFERS,
                    id=thing.id,
                    facts=facts,
                    reason="machine type",
                    replaces=("machine type",),
                )
            return CloudObservation(
                State.DIFFERS,
                id=thing.id,
                facts=facts,
                reason="counts",
                changes=("counts",),
            )
        return CloudObservation(
            thing.state,
            id=thing.id,
            facts=facts,
            reason=thing.reason or str(thing.state),
            cause=thing.cause,
            health=self.cloud.health.get(thing.key),
        )

    def create(self, wanted: ObjectWork) -> None:
        """See `ObjectHandler`."""
        key = wanted.object.key
        with self.cloud._lock:
            self.cloud.call("create", key)
            missing = [
                need
                for need in wanted.object.needs
                if need not in self.cloud.things and not _in_cluster(need)
            ]
            if missing:
                raise AssertionError(f"{key} is created before {missing}")
            if key in self.cloud.things:
                raise AssertionError(f"{key} is created twice")
            self.cloud._made += 1
            self.cloud.things[key] = CloudThing(
                key,
                wanted.object.kind,
                f"{key.replace('/', '-')}-{self.cloud._made}",
                wanted.owner.digits,
                wanted.token,
                repr(wanted.object.calls),
                wanted.object.needs,
            )
            self.cloud.ids[key] = self.cloud.things[key].id
            pending = Counter(
                each.kind
                for each in self.cloud.things.values()
                if each.state is State.PENDING
            )
            for kind, count in pending.items():
                self.cloud.most_at_once[kind] = max(
                    count, self.cloud.most_at_once.get(kind, 0)
                )
            self.cloud.lost("create", key)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """See `ObjectHandler`."""
        del found
        key = wanted.object.key
        with self.cloud._lock:
            self.cloud.call("update", key)
            self.cloud.things[key].content = repr(wanted.object.calls)
            self.cloud.lost("update", key)

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """See `ObjectHandler`."""
        del found
        key = wanted.object.key
        with self.cloud._lock:
            self.cloud.call("delete", key)
            thing = self.cloud.things.get(key)
            if thing is None:
                return
            users = [
                each.key
                for each in self.cloud.things.values()
                if key in each.needs and not self._goes_with(key, each)
            ]
            if users:
                raise Dependency(f"{key} is used by {', '.join(users)}")
            thing.state = State.DELETING
            self.cloud.lost("delete", key)

    def _goes_with(self, key: str, other: CloudThing) -> bool:
        return key == "cluster" and (
            other.kind in ("AccessEntry", "Addon")
            or (self.provider == "GKE" and other.kind == "NodePool")
        )

    def _remove(self, thing: CloudThing) -> None:
        del self.cloud.things[thing.key]
        if thing.key == "cluster":
            for other in [
                each
                for each in self.cloud.things.values()
                if self._goes_with("cluster", each)
            ]:
                del self.cloud.things[other.key]


class ScriptedProvider:
    """See `Provider`."""

    def __init__(self, cloud: ScriptedCloud, region: str) -> None:
        self.cloud = cloud
        self.region = region

    def pinned(self, account: CloudAccount) -> CloudAccount:
        if self.cloud.shut:
            raise CredentialsInvalid("the security token is not valid")
        return account.model_copy(update={"project": account.project or PROJECT})

    def plan(
        self,
        account: CloudAccount,
        cluster: InferenceCluster,
        classes: Mapping[str, InferenceClass],
        known: Mapping[str, Facts],
    ) -> Desired:
        del known
        with self.cloud._lock:
            self.cloud.call("plan", "")
        if account.provider == "GKE":
            return gke_objects(
                account.installation,
                cluster,
                classes,
                GkeSettings(),
                GkeFacts(account.project),
            )
        facts = EksFacts(
            zones=tuple(f"{self.region}{letter}" for letter in "abc"), principal=ROLE
        )
        return eks_objects(account.installation, cluster, classes, EksSettings(), facts)

    def work_class(self, kind: str) -> WorkClass:
        return WORK.get(kind, "Quick")

    def handler(self, account: CloudAccount, kind: str) -> ObjectHandler | None:
        return (
            None
            if kind in IN_CLUSTER
            else ScriptedHandler(self.cloud, account.provider)
        )

    def cloud_cluster(self, account: CloudAccount) -> str:
        return owner_named(
            account.installation, account.cluster, account.cluster_uid
        ).base

    def endpoint(self, account: CloudAccount) -> ApiServerEndpoint:
        del account
        return ApiServerEndpoint("https://192.0.2.1", "")

    def token(self, account: CloudAccount) -> BearerToken:
        del account
        return BearerToken("a token", 2e9)

    def audit(self, order: AuditCloud) -> Sequence[Leftover]:
        with self.cloud._lock:
            self.cloud.call("audit", "")
            self.cloud.emptied.add(order.emptied)
            left = [
                Leftover(
                    kind=each.kind,
                    id=each.id,
                    evidence="owner mark",
                    ours=True,
                    key=each.key,
                    link=f"https://cloud.example/{each.id}",
                )
                # Newest objects first.
                for each in reversed(self.cloud.things.values())
                if each.owner != OTHER
            ]
            return [*left, *self.cloud.leftovers]

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        del order
        with self.cloud._lock:
            self.cloud.call("sweep", leftover.id)
            if leftover.key:
                # An object can be deleted only after the objects that need it.
                if users := [
                    each.key
                    for each in self.cloud.things.values()
                    if leftover.key in each.needs
                ]:
                    raise Dependency(f"{leftover.key} is used by {', '.join(users)}")
                del self.cloud.things[leftover.key]
            else:
                self.cloud.leftovers.remove(leftover)


def _in_cluster(key: str) -> bool:
    return key in ("conn", "nodes/system", "sc") or key.startswith("chart/")
