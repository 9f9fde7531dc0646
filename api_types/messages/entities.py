"""Signals and updates between entities, and from users to entities.

Each argument is one JSON object in camelCase. A repeat changes nothing: a message carries a whole value, and where order matters a
request id, a sequence number or a uid.
`manifest` is plain JSON: it is checked by the receiver, because a signal cannot be rejected.
"""

from typing import Any, Literal

from pydantic import Field

from api_types.base import Id, Message, Name, SentAt, Text
from api_types.messages.cluster_work import ClusterFacts, Connection
from api_types.prices import UNPRICED
from api_types.resources.status import LeftBehind

# --- from users ---------------------------------------------------------------------------------------------------------------------


class UserRequest(Message):
    """What a user requests. The same `request_id` again changes nothing; `by` names who requested it."""

    request_id: Name = ""
    by: Name = ""


WEBHOOK_REQUEST = "webhook-"
"""What the ids of requests begin with that a program has signed for the webhook of the front."""


class SetSpec(UserRequest):
    """Create or change an object: the whole manifest, and why, where that is recorded."""

    manifest: Any = None
    reason: Text = ""


class Scale(UserRequest):
    """Set the replica count, and why, which is shown."""

    replicas: Any = None
    reason: Text = ""


class RecordEvent(UserRequest):
    """Record what another system reports of an object, such as an autoscaler. `reason`: one word, as in events of Kubernetes."""

    type: Literal["Normal", "Warning"] = "Normal"
    reason: Name
    message: Text = ""


class Delete(UserRequest):
    """Request deletion; `evict` first moves the replicas on a cluster elsewhere.

    `purge_crds`: the definitions that the charts of a cluster's stack leave are deleted too, where there is no object of them.
    `uid`: only the object with this uid is meant, and not another one of its name; empty means whichever there is.
    """

    evict: bool = False
    purge_crds: bool = False
    uid: Id = ""


class Force(UserRequest):
    """Skip the teardown step now waited for (`step`), or all that remain (`all`).

    While no connection to the cluster of a ModelReplica is known, `step` too ends all its steps on that cluster: each would wait for the
    connection. If the InferenceCluster was deleted, they end even without force. What stays is listed as left behind in every case.
    """

    scope: Literal["step", "all"] = "step"
    reason: Text = ""


class ForceFinalizer(UserRequest):
    """Remove a finalizer of an object that the teardown of a cluster waits for. `object`: `<Kind>/<namespace>/<name>`, or its id.

    `accept_leak`: also one whose controller deletes something outside the cluster, such as a load balancer, which then stays and costs.
    """

    object: Id = ""
    finalizer: Name = ""
    reason: Text = ""
    accept_leak: bool = False


class RetryNow(UserRequest):
    """Retry now what waits for its next attempt."""


class Keep(UserRequest):
    """Take back a deletion that waits for users of the object and has removed nothing yet."""


class CancelRequested(Message):
    """The cancellation of a workflow was requested, in Temporal. Its worker sends this in place of that."""

    reason: Text = ""


class Replace(UserRequest):
    """Change an object whose labels, annotations and spec are still those of `resource_version`; empty means whatever they are now.

    `keeps_replicas`: the count in the manifest was read and not chosen, so it changes nothing of who sets it.
    """

    resource_version: Name = ""
    keeps_replicas: bool = False
    manifest: Any = None
    reason: Text = ""


class SetLabels(Message):
    """What a replica takes over from its deployment besides the template: labels, which change nothing on a cluster, and picker flags.

    `uid`: the replica that is meant; empty means whichever has the name. `sequence` orders these among each other and with templates.
    """

    uid: Id = ""
    sequence: SentAt = 0
    labels: dict[str, str] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)


class SecretsChanged(Message):
    """The secret store has another version of something that a replica or cache has a copy of. `uid`: the object that is meant."""

    uid: Id


# --- clusters and classes ---------------------------------------------------------------------------------------------------------------


class ClassUse(Message):
    """A cluster registers as a user of a class, to be signalled about its changes; `used` False unregisters.

    `sequence` orders the registrations of the cluster with this `uid`.
    """

    cluster: Id
    uid: Id = ""
    sequence: SentAt = 0
    used: bool = True


class ClassChanged(Message):
    """A class was created or changed. `price_milli`: the price of a node-hour in thousandths, negative when unknown.

    `sequence` orders what the class with this `uid` reports of one generation: a new price makes none.
    """

    name: Id
    uid: Id = ""
    generation: int = 0
    sequence: SentAt = 0
    spec: dict[str, Any] | None = None
    price_milli: int = UNPRICED


class ClusterChanged(Message):
    """What the replicas on a cluster must know of it. `problem` says why it is not connected.

    `gone`: the cluster itself does not exist any more, as its cloud says, and so nothing that was on it; None if that is not known.
    """

    name: Id
    uid: Id = ""
    sequence: SentAt
    present: bool = True
    connected: bool = False
    problem: Text = ""
    unreachable_for_seconds: int = 0
    connection: Connection | None = None
    facts: ClusterFacts | None = None
    gone: bool | None = None


# --- ModelReplica -----------------------------------------------------------------------------------------------------------------------


class StartReplica(Message):
    """The start argument of a ModelReplica: its identity and first template.

    `restarted`: its workflow ran before and was terminated, so objects of it may be on the cluster. Its reports are numbered above
    `first_sequence`, and so above all reports of earlier runs. `deleting`: it is started only to delete what an earlier run has applied.
    `sequence`, `adoption`: as in `SetTemplate`.
    """

    uid: str
    namespace: str
    name: str
    deployment: str
    deployment_uid: str
    cluster: str
    index: int
    generation: int
    sequence: int = 0
    spec: dict[str, Any]
    entry: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)
    adoption: SentAt = 0
    restarted: bool = False
    first_sequence: int = 0
    deleting: bool = False


class SetTemplate(Message):
    """A newer template for a running replica, with its new ledger entry.

    `uid`: the replica that is meant; empty means whichever has the name. `sequence` orders those of one generation, and labels with them.
    A higher `adoption` than before allows once to replace pods although the spec that they are made from is the same.
    """

    uid: Id = ""
    generation: int
    sequence: SentAt = 0
    spec: dict[str, Any]
    entry: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)
    adoption: SentAt = 0


class ReplicaChanged(Message):
    """The state that a replica reports to its deployment; the highest sequence of a uid wins.

    `pending`: why its pods would be other ones if they were made now; empty if they would not. `adopting`: the deployment shall have them
    replaced without being told to. `adoption` is the last one that was applied.
    """

    name: Id
    uid: Id
    sequence: SentAt
    phase: Id
    ready: bool = False
    serving: bool = False
    generation: int = 0
    endpoint: Id = ""
    message: Text = ""
    pending: Text = ""
    adopting: bool = False
    adoption: SentAt = 0
    left_behind: list[LeftBehind] = Field(default_factory=list)


class CheckReplicas(Message):
    """Have a deployment check whether the workflows of its replicas run: that of some was terminated, or failed."""


# --- sent through activities -------------------------------------------------------------------------------------------------------------


class StartReplicas(Message):
    """Start the workflows of placed replicas; one that already runs with the same uid is left as it is."""

    replicas: list[StartReplica] = Field(alias="births")


class StartedReplicas(Message):
    """The names of those that do not run.

    `conflicts`: those whose name is in use. `unfinished`: another uid has the name, was terminated and may have left objects. `completed`:
    it ran, and is gone. `refused`: those that the server does not accept, with its reason.
    """

    conflicts: list[str] = Field(default_factory=list)
    unfinished: list[str] = Field(default_factory=list)
    completed: list[str] = Field(default_factory=list)
    refused: dict[Name, Text] = Field(default_factory=dict)
