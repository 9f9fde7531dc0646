"""Input and output of the activities that install, observe and remove a serving stack.

Nothing here is secret: connections are references, and the values of releases are those of `activities/render/stack`. Neither manifests nor
what Helm stored ever leave an activity.
"""

from typing import Annotated, Any

from pydantic import Field

from api_types.base import Id, Message, Name, Text
from api_types.limits import UPGRADES_AT_ONCE_MAX
from api_types.messages.cluster_work import Connection, RemainingObject, Seconds, TeardownStepResult

_RELEASES_MAX = 32
ITEMS_MAX = 64
DEFINITIONS_KEPT_MAX = 256

# --- releases -----------------------------------------------------------------------------------------------------------------------


class HelmRelease(Message):
    """One Helm release, whole: what shall be installed, from where, and with which values."""

    name: Name
    namespace: Name
    chart: Name
    repository: Id
    version: Id
    values: dict[str, Any] = Field(default_factory=dict)


class StackOrder(Message):
    """What every order for the stack of a cluster says: where, and for which InferenceCluster."""

    connection: Connection
    cluster_uid: Id


class EnsureRelease(StackOrder):
    """Install or upgrade one release on one cluster.

    Nothing is written where it is as wanted, but with `rewrite`: something of it was deleted by hand.
    """

    release: HelmRelease
    rewrite: bool = False


class EnsuredRelease(Message):
    """A release as Helm left it. `workloads` are the Deployments, StatefulSets and DaemonSets of its chart, as `<Kind>/<ns>/<name>`."""

    name: Name
    revision: int = 0
    status: Id = ""
    version: Id = ""
    values_digest: Id = ""
    workloads: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)


class UninstallRelease(StackOrder):
    """Uninstall one release and wait for its pods; a result that names what remains comes after `wait_seconds` at the latest.

    `workloads` are those of the release as `EnsuredRelease` named them. `unused_kinds`: kinds, as `<apiVersion>/<Kind>`, of which no object
    may be left on the cluster before: the release serves them. `cluster_uid`: as for `EnsureRelease`.
    """

    name: Name
    namespace: Name
    workloads: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)
    unused_kinds: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)
    claim_drivers: Annotated[list[Name], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)
    wait_seconds: Seconds = 10


# --- the stack of a cluster ---------------------------------------------------------------------------------------------------------


class PreflightStack(StackOrder):
    """Make the plan for a stack, and check that nothing of others is in its way.

    `source` is that of the cluster. `installed` are the releases that are known to be ours.
    """

    source: Id
    installed: Annotated[list[Name], Field(max_length=_RELEASES_MAX)] = Field(default_factory=list)


class StackPlan(Message):
    """What a stack consists of, as one worker's settings have it: `spec` of its record, and its releases by component.

    `digest` is over what the settings say: another one is another stack. `kept`: the components whose releases stay as they are, because
    the wanted version is older and cannot be gone back to, with the reason; their releases have the version that is installed.
    """

    digest: Id
    spec: dict[str, Any]
    releases: Annotated[dict[Name, HelmRelease], Field(max_length=_RELEASES_MAX)] = Field(default_factory=dict)
    kept: Annotated[dict[Name, Text], Field(max_length=_RELEASES_MAX)] = Field(default_factory=dict)


class ApplyStackObjects(StackOrder):
    """Apply a group of objects (`activities/render/stack/objects.py`)."""

    spec: dict[str, Any]
    group: Name


class ApplyChartCrds(StackOrder):
    """Apply the definitions in the `crds/` folders of some charts, and wait until they are established."""

    releases: Annotated[list[HelmRelease], Field(max_length=_RELEASES_MAX)]


class StackApplied(Message):
    """What was applied: how many objects, and what users should know, such as objects of others that stay."""

    objects: int = 0
    notes: Annotated[list[Text], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)


class InstalledRelease(Message):
    """What a check needs of a release: its name and place, the revision that was written, and its workloads."""

    component: Name
    name: Name
    namespace: Name
    revision: int = 0
    workloads: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)


class CheckStack(StackOrder):
    """Observe a stack until what is seen differs from `known`, or until `max_seconds` have passed.

    `releases` and `groups` are what is installed so far; `plan` is the digest of the plan that is carried out. `confirm_seconds`: a change
    is reported when it is still there after so long.
    """

    source: Id
    spec: dict[str, Any]
    plan: Id
    releases: Annotated[list[InstalledRelease], Field(max_length=_RELEASES_MAX)] = Field(default_factory=list)
    groups: Annotated[list[Name], Field(max_length=_RELEASES_MAX)] = Field(default_factory=list)
    known: Id = ""
    poll_seconds: Seconds = 5
    confirm_seconds: Seconds = 0
    max_seconds: Seconds = 300


class Lag(Message):
    """One thing that is not as it shall be. `target` is the component or group that it belongs to.

    `missing`: it has to be applied or installed again. `gates`: the target is not ready because of it; otherwise people should know.
    """

    target: Name
    object: Id
    why: Text = ""
    missing: bool = False
    gates: bool = True


class StackSeen(Message):
    """What a check saw, at most so much of it that a condition can say it.

    `digest` is over all the rest. `wanted`: the digest of the plan that the worker's settings make now. `address` is that of the Gateway;
    `address_events`: what the load balancer's Service says while there is none. `restart`: the AI gateway was started before there were
    InferencePools, and does not serve them until it is restarted. `device_slices`: how many ResourceSlices drivers publish.
    `upgrades_at_once`: how many clusters may upgrade at the same time, as the worker's settings say.
    """

    digest: Id = ""
    wanted: Id = ""
    lags: Annotated[list[Lag], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)
    more: int = 0
    notes: Annotated[list[Text], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)
    address: Id = ""
    address_events: Annotated[list[Text], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)
    restart: bool = False
    device_slices: int = 0
    upgrades_at_once: Annotated[int, Field(ge=1, le=UPGRADES_AT_ONCE_MAX)] = 1

    def gating(self, targets: tuple[str, ...]) -> list[Lag]:
        """Give what keeps some components and groups from being ready."""
        return [lag for lag in self.lags if lag.gates and lag.target in targets]


# --- removal ------------------------------------------------------------------------------------------------------------------------


class RemoveStackObjects(StackOrder):
    """Delete a group of objects and wait until they are gone; with the Gateway, until its load balancer is too.

    `skipped`: ids of objects that are no longer waited for.
    """

    spec: dict[str, Any]
    group: Name
    wait_seconds: Seconds = 10
    skipped: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)


class AwaitNoRoutes(StackOrder):
    """Wait until no route and no pool of ours is left on the cluster."""

    wait_seconds: Seconds = 10


class RemoveFinalizer(StackOrder):
    """Remove a finalizer from an object that is being deleted."""

    object: Id
    finalizer: Name


class RemovedFinalizer(Message):
    """Whether it was removed, and if not why."""

    removed: bool = False
    why: Text = ""


class PurgeDefinitions(StackOrder):
    """Delete the definitions in the `crds/` folders of the charts of releases, where there is no object of them; wait until they are gone.

    `skipped`: ids of definitions that are no longer waited for.
    """

    releases: Annotated[list[HelmRelease], Field(max_length=_RELEASES_MAX)]
    wait_seconds: Seconds = 10
    skipped: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)


class PurgedDefinitions(TeardownStepResult):
    """What was not deleted: `kept` are the definitions that stay, with the reason."""

    kept: Annotated[list[RemainingObject], Field(max_length=DEFINITIONS_KEPT_MAX)] = Field(default_factory=list)


class ListLoadBalancers(StackOrder):
    """List the Services of type LoadBalancer in all namespaces."""


class LoadBalancers(Message):
    """The Services that were found, as `<namespace>/<name>`; of many the first, and how many more there are."""

    services: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(default_factory=list)
    more: int = 0
