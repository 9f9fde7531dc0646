"""Input and output of the activities that install, observe and remove a serving stack.

No message contains a secret: connections are references, and the values of releases are
rendered by `activities/render/stack`. Neither manifests nor Helm's stored data ever
leave an activity.
"""

from typing import Annotated, Any

from pydantic import Field

from api_types.base import Id, Message, Name, Text
from api_types.limits import UPGRADES_AT_ONCE_MAX
from api_types.messages.cluster_work import (
    Connection,
    RemainingObject,
    Seconds,
    TeardownStepResult,
)

_RELEASES_MAX = 32
ITEMS_MAX = 64
DEFINITIONS_KEPT_MAX = 256

# Releases


class HelmRelease(Message):
    """One complete Helm release: its chart, version, repository and values."""

    name: Name
    namespace: Name
    chart: Name
    repository: Id
    version: Id
    values: dict[str, Any] = Field(default_factory=dict)


class StackOrder(Message):
    """The common fields of all requests for the stack of a cluster."""

    connection: Connection
    cluster_uid: Id


class EnsureRelease(StackOrder):
    """Install or upgrade one release on one cluster.

    An up-to-date release is not changed, except with `rewrite`: an object of it was
    deleted by hand.
    """

    release: HelmRelease
    rewrite: bool = False


class EnsuredRelease(Message):
    """A release as Helm left it.

    `workloads` are the Deployments, StatefulSets and DaemonSets of its chart, as
    `<Kind>/<ns>/<name>`.
    """

    name: Name
    revision: int = 0
    status: Id = ""
    version: Id = ""
    values_digest: Id = ""
    workloads: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )


class UninstallRelease(StackOrder):
    """Uninstall one release and wait for its pods.

    A result with the remaining objects comes after `wait_seconds` at the latest.
    `workloads` are the workloads in `EnsuredRelease`. `unused_kinds`: kinds, as
    `<apiVersion>/<Kind>`, of which no object may exist before the uninstall, because
    the release serves them. `cluster_uid` is as for `EnsureRelease`.
    """

    name: Name
    namespace: Name
    workloads: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )
    unused_kinds: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )
    claim_drivers: Annotated[list[Name], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )
    wait_seconds: Seconds = 10


# The stack of a cluster


class PreflightStack(StackOrder):
    """Plan a stack, and check that no objects of others conflict with it.

    `source` is the source of the cluster. `installed` are our known releases.
    """

    source: Id
    installed: Annotated[list[Name], Field(max_length=_RELEASES_MAX)] = Field(
        default_factory=list
    )


class StackPlan(Message):
    """The content of a stack, according to one worker's settings.

    `spec` is the spec of the ServingStack, `releases` its releases by component.
    `digest` covers the settings: a different digest means a different stack. `kept`:
    components whose releases do not change, because the wanted version is older and a
    downgrade is impossible, with the reason. Their releases have the installed version.
    `adopted`: the components in `kept` that are not installed at all, because others
    installed them. `left`: what others have and the stack does not touch. `found`: the
    cluster already has the mark of this stack's owner.
    """

    digest: Id
    spec: dict[str, Any]
    releases: Annotated[dict[Name, HelmRelease], Field(max_length=_RELEASES_MAX)] = (
        Field(default_factory=dict)
    )
    kept: Annotated[dict[Name, Text], Field(max_length=_RELEASES_MAX)] = Field(
        default_factory=dict
    )
    adopted: Annotated[list[Name], Field(max_length=_RELEASES_MAX)] = Field(
        default_factory=list
    )
    left: Annotated[list[Text], Field(max_length=_RELEASES_MAX)] = Field(
        default_factory=list
    )
    found: bool = False


class ApplyStackObjects(StackOrder):
    spec: dict[str, Any]
    group: Name


class ApplyChartCrds(StackOrder):
    """Apply the CRDs in the `crds/` folders of charts, and wait for their readiness."""

    releases: Annotated[list[HelmRelease], Field(max_length=_RELEASES_MAX)]


class StackApplied(Message):
    """The number of applied objects, and notes for users about foreign objects."""

    objects: int = 0
    notes: Annotated[list[Text], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )


class InstalledRelease(Message):
    """The properties of a release that a check needs.

    They are its name and namespace, the written revision, and its workloads.
    """

    component: Name
    name: Name
    namespace: Name
    revision: int = 0
    workloads: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )


class CheckStack(StackOrder):
    """Observe a stack until the result differs from `known`, for at most `max_seconds`.

    `releases` and `groups` are the installed parts; `plan` is the digest of the current
    plan. A change is reported after it has persisted for `confirm_seconds`.
    """

    source: Id
    spec: dict[str, Any]
    plan: Id
    releases: Annotated[list[InstalledRelease], Field(max_length=_RELEASES_MAX)] = (
        Field(default_factory=list)
    )
    groups: Annotated[list[Name], Field(max_length=_RELEASES_MAX)] = Field(
        default_factory=list
    )
    known: Id = ""
    poll_seconds: Seconds = 5
    confirm_seconds: Seconds = 0
    max_seconds: Seconds = 300


class Lag(Message):
    """One deviation from the plan.

    `target` is its component or group. `missing` means that it must be applied or
    installed again. `gates` means that the target is not ready because of it; otherwise
    the deviation is only shown to users.
    """

    target: Name
    object: Id
    why: Text = ""
    missing: bool = False
    gates: bool = True


class StackSeen(Message):
    """The result of a check, limited to the size of a condition.

    - `digest`: covers everything else.
    - `wanted`: the digest of the plan that the worker's settings produce now.
    - `address`: the address of the Gateway.
    - `address_events`: the events of the load balancer's Service while there is no
      address.
    - `restart`: the AI gateway started before InferencePools existed, and does not
      serve them until it is restarted.
    - `device_slices`: the number of ResourceSlices that drivers publish.
    - `upgrades_at_once`: the number of clusters that may upgrade concurrently, from the
      worker's settings.
    """

    digest: Id = ""
    wanted: Id = ""
    lags: Annotated[list[Lag], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )
    more: int = 0
    notes: Annotated[list[Text], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )
    address: Id = ""
    address_events: Annotated[list[Text], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )
    restart: bool = False
    device_slices: int = 0
    upgrades_at_once: Annotated[int, Field(ge=1, le=UPGRADES_AT_ONCE_MAX)] = 1

    def gating(self, targets: tuple[str, ...]) -> list[Lag]:
        """Return the deviations that keep components and groups from being ready."""
        return [lag for lag in self.lags if lag.gates and lag.target in targets]


# Removal


class RemoveStackObjects(StackOrder):
    """Delete a group of objects and wait until they are gone.

    For the Gateway, also wait until its load balancer is gone. `skipped` are ids of
    objects that the activity no longer waits for.
    """

    spec: dict[str, Any]
    group: Name
    wait_seconds: Seconds = 10
    skipped: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )


class AwaitNoRoutes(StackOrder):
    """Wait until none of our routes and pools is left on the cluster."""

    wait_seconds: Seconds = 10


class RemoveFinalizer(StackOrder):
    object: Id
    finalizer: Name


class RemovedFinalizer(Message):
    """Whether the finalizer was removed, and otherwise the reason."""

    removed: bool = False
    why: Text = ""


class PurgeDefinitions(StackOrder):
    """Delete the CRDs in the `crds/` folders of charts, if they have no objects.

    The activity waits until they are gone. `skipped` are ids of CRDs that it no longer
    waits for.
    """

    releases: Annotated[list[HelmRelease], Field(max_length=_RELEASES_MAX)]
    wait_seconds: Seconds = 10
    skipped: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )


class PurgedDefinitions(TeardownStepResult):
    """The CRDs that were not deleted. `kept` are those that stay, with the reason."""

    kept: Annotated[list[RemainingObject], Field(max_length=DEFINITIONS_KEPT_MAX)] = (
        Field(default_factory=list)
    )


class ListLoadBalancers(StackOrder):
    pass


class LoadBalancers(Message):
    """The Services of type LoadBalancer, as `<namespace>/<name>`.

    The list is limited; `more` is the number of further ones.
    """

    services: Annotated[list[Id], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=list
    )
    more: int = 0
