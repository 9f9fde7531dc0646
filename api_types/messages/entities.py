"""Signals and updates between entities, and from users to entities.

Each argument is one JSON object in camelCase. A repeated message has no effect: a
message contains a whole value and, if the order matters, a request id, a sequence
number or a uid. `manifest` is plain JSON; the receiver validates it, because a signal
cannot be rejected.
"""

from typing import Any, Literal

from pydantic import Field

from api_types.base import Id, Message, Name, SentAt, Text
from api_types.messages.cluster_work import ClusterFacts, Connection
from api_types.prices import UNPRICED
from api_types.resources.status import LeftBehind

# Requests by users.


class UserRequest(Message):
    """A user's request. A repeated `request_id` has no effect. `by` is the user."""

    request_id: Name = ""
    by: Name = ""


WEBHOOK_REQUEST = "webhook-"
"""The prefix of the ids of requests that a program has signed for the front's webhook.
"""


class SetSpec(UserRequest):
    """Create or change an object: the whole manifest, with an optional reason."""

    manifest: Any = None
    reason: Text = ""


class Scale(UserRequest):
    """Set the replica count. The reason is shown to users."""

    replicas: Any = None
    reason: Text = ""


class RecordEvent(UserRequest):
    """Record an event that another system, such as an autoscaler, reports.

    `reason` is one word, as in Kubernetes events.
    """

    type: Literal["Normal", "Warning"] = "Normal"
    reason: Name
    message: Text = ""


class Delete(UserRequest):
    """Request deletion; `evict` first moves the replicas on a cluster elsewhere.

    `purge_crds`: also delete the CRDs that the charts of a cluster's stack leave, if
    they have no objects. `uid`: only the object with this uid; empty means any object
    of the name.
    """

    evict: bool = False
    purge_crds: bool = False
    uid: Id = ""


class Force(UserRequest):
    """Skip the current teardown step (`step`), or all remaining steps (`all`).

    While no connection to the cluster of a ModelReplica is known, `step` also skips all
    steps on that cluster, because each would wait for the connection. If the
    InferenceCluster was deleted, these steps end even without force. Remaining objects
    are always listed as left behind.
    """

    scope: Literal["step", "all"] = "step"
    reason: Text = ""


class ForceFinalizer(UserRequest):
    """Remove a finalizer of an object that the teardown of a cluster waits for.

    `object` is `<Kind>/<namespace>/<name>`, or an object id. `accept_leak`: remove it
    even if its controller deletes a resource outside the cluster, such as a load
    balancer, which then stays and costs money.
    """

    object: Id = ""
    finalizer: Name = ""
    reason: Text = ""
    accept_leak: bool = False


class RetryNow(UserRequest):
    """Retry operations immediately, instead of at their next attempt."""


class Keep(UserRequest):
    """Cancel a deletion that waits for users of the object and has removed nothing yet."""


class CancelRequested(Message):
    """Temporal received a request to cancel a workflow.

    Its worker sends this signal instead.
    """

    reason: Text = ""


class Replace(UserRequest):
    """Change an object if its version is still `resource_version`.

    The version covers labels, annotations and spec. An empty version always matches.
    `keeps_replicas` means that the replica count in the manifest was copied and not
    chosen, so the owner of the count does not change.
    """

    resource_version: Name = ""
    keeps_replicas: bool = False
    manifest: Any = None
    reason: Text = ""


class SetLabels(Message):
    """Labels and picker flags that a replica takes from its deployment.

    The labels change nothing on the cluster. `uid`: the replica; empty means
    any replica of the name. `sequence` orders these messages and templates.
    """

    uid: Id = ""
    sequence: SentAt = 0
    labels: dict[str, str] = Field(default_factory=dict)
    picker_flags: dict[str, str] = Field(default_factory=dict)


class SecretsChanged(Message):
    """The secret store has a new version of a copied secret.

    `uid`: the replica or cache with the copy.
    """

    uid: Id


# Messages of clusters and classes.


class ClassUse(Message):
    """Registers a cluster as a user of a class, which then signals it about changes.

    `used` False unregisters. `sequence` orders the registrations of the cluster with
    this `uid`.
    """

    cluster: Id
    uid: Id = ""
    sequence: SentAt = 0
    used: bool = True


class ClassChanged(Message):
    """A class was created or changed.

    `price_milli` is the price of a node-hour in thousandths, negative if unknown.
    `sequence` orders the reports of the class with this `uid` within one generation,
    because a new price does not change the generation.
    """

    name: Id
    uid: Id = ""
    generation: int = 0
    sequence: SentAt = 0
    spec: dict[str, Any] | None = None
    price_milli: int = UNPRICED


class ClusterChanged(Message):
    """The state of a cluster that its replicas need.

    `problem` is the reason why it is not connected. `gone`: the cloud reported that the
    cluster no longer exists, and so none of its objects; None if that is not known.
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


# Messages of ModelReplicas.


class StartReplica(Message):
    """The start argument of a ModelReplica: its identity and first template.

    `restarted`: its workflow ran before and was terminated, so its objects may be on
    the cluster. Its reports have numbers above `first_sequence`, and so above all
    reports of earlier runs. `deleting`: it starts only to delete the objects of an
    earlier run. `sequence` and `adoption` are as in `SetTemplate`.
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

    `uid`: the replica; empty means any replica of the name. `sequence` orders templates
    of one generation, and labels with them. An increased `adoption` permits one
    replacement of pods whose source in the spec is unchanged.
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
    """The state that a replica reports to its deployment.

    The report with the highest sequence of a uid is valid.

    `pending` is the reason why its pods are outdated, or empty. `adopting` means that
    the deployment must replace them without a request by the user. `adoption` is the
    last applied adoption number.
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
    """Tells a deployment to check whether the workflows of its replicas run.

    Some of them were terminated, or failed.
    """


# Messages to activities.


class StartReplicas(Message):
    """Start the workflows of placed replicas.

    A workflow that already runs with the same uid is not changed.
    """

    replicas: list[StartReplica]


class StartedReplicas(Message):
    """The names of replicas that do not run.

    - `conflicts`: another object uses the name.
    - `unfinished`: a workflow with another uid had the name, was terminated, and may
      have left objects.
    - `completed`: the workflow has run and completed.
    - `refused`: the server rejected the start, with its reason.
    """

    conflicts: list[str] = Field(default_factory=list)
    unfinished: list[str] = Field(default_factory=list)
    completed: list[str] = Field(default_factory=list)
    refused: dict[Name, Text] = Field(default_factory=dict)
