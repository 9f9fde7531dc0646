"""The handlers of the control plane of EKS, access entries, and add-ons."""

from itertools import chain

from activities.clouds.desired.versions import minor_of, next_minor
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.base import (
    AwsHandler,
    issues_error,
    issues_text,
    not_ours,
    tags_of,
)
from activities.clouds.eks.handlers.health import DEGRADED, health_of
from activities.clouds.eks.handlers.updates import Updates
from activities.clouds.eks.handlers.zones import EKS, refuse_zones, zones_of
from activities.clouds.eks.wanted.control_plane import CLUSTER, SECURITY_GROUP
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    ObjectWork,
    State,
)
from api_types.errors import Busy, InvalidInput, PermissionDenied
from api_types.messages.clouds import CloudAccount

VERSION = "version"
"""The name of the fact with the Kubernetes version of a control plane or a node group.
"""

_CLUSTER_STATES = {
    "CREATING": State.PENDING,
    "PENDING": State.PENDING,
    "UPDATING": State.PENDING,
    "ACTIVE": State.READY,
    "FAILED": State.BROKEN,
    "DELETING": State.DELETING,
}


class EksClusterHandler(AwsHandler):
    """The control plane. Only its version changes, one minor version at a time."""

    def __init__(self, clients: AwsClients, account: CloudAccount) -> None:
        super().__init__(clients, account)
        self._updates = Updates()

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the control plane by name, and compare its version."""
        cluster = self.clients.read(
            "eks", "describe_cluster", name=wanted.object.name
        ).get("cluster")
        if cluster is None:
            return ABSENT
        marked = self.marked("eks", str(cluster["arn"]))
        if foreign := not_ours(tags_of(cluster, "tags"), wanted, marked):
            return foreign
        status, version = str(cluster["status"]), str(cluster.get("version", ""))
        network = cluster.get("resourcesVpcConfig", {})
        facts = {"id": wanted.object.name, VERSION: version}
        if network.get("clusterSecurityGroupId"):
            facts[SECURITY_GROUP] = str(network["clusterSecurityGroupId"])
        state = _CLUSTER_STATES.get(status, State.PENDING)
        health = cluster.get("health", {}).get("issues", ())
        issues = issues_text(health)
        trouble = None if state is State.BROKEN else health_of(status, health)
        if state is State.READY and any(
            call[VERSION] != version for call in self.expected(wanted, "create_cluster")
        ):
            return CloudObservation(
                State.DIFFERS,
                wanted.object.name,
                facts,
                f"version {version}",
                changes=(VERSION,),
                health=trouble,
            )
        parts = ["" if state is State.READY else f"status {status}", issues]
        reason = ": ".join(filter(None, parts))
        cause = issues_error(health) if state is State.BROKEN else None
        return CloudObservation(
            state, wanted.object.name, facts, reason, cause=cause, health=trouble
        )

    def create(self, wanted: ObjectWork) -> None:
        """Create the control plane.

        Raises PlanOutdated if EKS rejects a zone, after marking the zone.
        """
        given = self.filled(wanted.object.calls[0], wanted, {})
        valid = self.clients.create_cluster(given)
        if not valid:
            return
        zones, subnets = zones_of(wanted), given["resourcesVpcConfig"]["subnetIds"]
        refused = {zones[each] for each in subnets if each in zones} - set(valid)
        if not refused:
            raise InvalidInput(
                f"EKS accepts clusters of this account in {', '.join(valid)}; set "
                "eks.zones to these zones"
            )
        refuse_zones(self.clients, wanted, EKS, refused)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start the upgrade to the next minor version.

        Raises InvalidInput for a lower one.
        """
        there = found.facts[VERSION]
        for call in self.expected(wanted, "create_cluster"):
            if minor_of(call[VERSION]) < minor_of(there):
                raise InvalidInput(
                    f"cluster {wanted.object.name} has version {there} and cannot be "
                    f"downgraded to kubernetesVersion {call[VERSION]}"
                )
            self._updates.order(
                self.clients,
                "update_cluster_version",
                wanted.object.name,
                {"clusterName": wanted.object.name},
                version=next_minor(there),
            )

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete the control plane.

        Raises Busy while it is created or changed, because EKS rejects the deletion,
        and Dependency while it has node groups.
        """
        if found.state is State.PENDING:
            raise Busy(f"cluster {wanted.object.name} has {found.reason}")
        self.clients.delete("eks", "delete_cluster", name=wanted.object.name)


class AccessEntryHandler(AwsHandler):
    """The access entry of Modelplane's own role.

    An entry without Modelplane's tags is used and never deleted: EKS has created it for
    the creator of the cluster, or another user has.
    """

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the entry by its principal, and compare its policies."""
        who = self._who(wanted)
        entry = self.clients.read("eks", "describe_access_entry", **who).get(
            "accessEntry"
        )
        if not entry:
            return ABSENT
        listed = self.clients.listed(
            "eks", "list_associated_access_policies", "associatedAccessPolicies", **who
        )
        there = {each["policyArn"] for each in listed}
        missing = [
            call["policyArn"]
            for call in self.expected(wanted, "associate_access_policy")
            if call["policyArn"] not in there
        ]
        state, foreign = (
            State.DIFFERS if missing else State.READY,
            not_ours(tags_of(entry, "tags"), wanted),
        )
        shared = foreign.reason if foreign else ""
        return CloudObservation(
            state,
            wanted.object.name,
            {"id": wanted.object.name},
            changes=tuple(missing),
            shared=shared,
        )

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete the entry. It is also deleted with the cluster."""
        del found
        self.clients.delete("eks", "delete_access_entry", **self._who(wanted))

    def _who(self, wanted: ObjectWork) -> dict[str, str]:
        return {"clusterName": wanted.owner.base, "principalArn": wanted.object.name}


# A new add-on is `DEGRADED` until its pods have nodes. The lifecycle waits for that.
_ADDON_STATES = {
    "CREATING": State.PENDING,
    "UPDATING": State.PENDING,
    "DEGRADED": State.PENDING,
    "ACTIVE": State.READY,
    "UPDATE_FAILED": State.READY,
    "CREATE_FAILED": State.BROKEN,
    "DELETE_FAILED": State.BROKEN,
    "DELETING": State.DELETING,
}
_FOR_KUBERNETES = "kubernetes"


class AddonHandler(AwsHandler):
    """An add-on.

    After each upgrade of the control plane to another minor version, the add-on is
    upgraded to EKS's default version for it.
    """

    def __init__(self, clients: AwsClients, account: CloudAccount) -> None:
        super().__init__(clients, account)
        self._updates = Updates()

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the add-on by name, and compare its version.

        Versions are compared only if the control plane was upgraded since the add-on
        was last Ready.
        """
        name = wanted.object.name
        addon = self.clients.read(
            "eks", "describe_addon", clusterName=wanted.owner.base, addonName=name
        ).get("addon")
        if addon is None:
            return ABSENT
        if foreign := self.not_ours_inside(addon, "addonArn", wanted):
            return foreign
        status = str(addon["status"])
        state = _ADDON_STATES.get(status, State.PENDING)
        health = addon.get("health", {}).get("issues", ())
        if status == DEGRADED and wanted.known_id:
            state = State.READY
        there, made_for = (
            str(addon.get("addonVersion", "")),
            wanted.known.get(wanted.object.key, {}).get(_FOR_KUBERNETES, ""),
        )
        kubernetes = wanted.known.get(CLUSTER, {}).get(VERSION, "") or made_for
        if state is State.READY and kubernetes and not made_for:
            made_for = self._made_for(name, there, kubernetes)
        facts = {"id": name, VERSION: there}
        if (
            state is State.READY
            and made_for
            and made_for != kubernetes
            and self._default(name, kubernetes) not in ("", there)
        ):
            return CloudObservation(
                State.DIFFERS,
                name,
                {**facts, _FOR_KUBERNETES: made_for},
                f"{there} is for {made_for}",
                changes=(VERSION,),
                health=health_of(status, health),
            )
        parts = ["" if status == "ACTIVE" else f"status {status}", issues_text(health)]
        if kubernetes:
            facts[_FOR_KUBERNETES] = kubernetes
        reason = ": ".join(filter(None, parts))
        trouble = health_of(status, health) if state is State.READY else None
        return CloudObservation(state, name, facts, reason, health=trouble)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Start the upgrade to the default version. Settings of users are preserved."""
        del found
        name, kubernetes = (
            wanted.object.name,
            wanted.known.get(CLUSTER, {}).get(VERSION, ""),
        )
        who = {"clusterName": wanted.owner.base, "addonName": name}
        version = self._default(name, kubernetes)
        self._updates.order(
            self.clients,
            "update_addon",
            f"add-on {name}",
            who,
            addonVersion=version,
            resolveConflicts="PRESERVE",
        )

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete the add-on with its pods."""
        del found
        self.clients.delete(
            "eks",
            "delete_addon",
            clusterName=wanted.owner.base,
            addonName=wanted.object.name,
            preserve=False,
        )

    def _made_for(self, name: str, there: str, kubernetes: str) -> str:
        """Return the Kubernetes version that an add-on was installed for."""
        try:
            addons = list(
                self.clients.listed(
                    "eks", "describe_addon_versions", "addons", addonName=name
                )
            )
        except PermissionDenied:
            return kubernetes
        offered: dict[str, bool] = {}
        for version in chain.from_iterable(
            each.get("addonVersions", ()) for each in addons
        ):
            if version["addonVersion"] == there:
                offered |= {
                    str(each["clusterVersion"]): bool(each.get("defaultVersion"))
                    for each in version["compatibilities"]
                }
        defaults = [each for each, is_default in offered.items() if is_default]
        if kubernetes in (defaults or offered):
            return kubernetes
        older = [
            each
            for each in defaults or offered
            if minor_of(each) < minor_of(kubernetes)
        ]
        return max(older, key=minor_of, default=kubernetes)

    def _default(self, name: str, kubernetes: str) -> str:
        """Return the version that EKS installs by default, or "" if it reports none."""
        for addon in self.clients.listed(
            "eks",
            "describe_addon_versions",
            "addons",
            addonName=name,
            kubernetesVersion=kubernetes,
        ):
            for version in addon.get("addonVersions", ()):
                if any(
                    each.get("defaultVersion")
                    and each.get("clusterVersion") == kubernetes
                    for each in version.get("compatibilities", ())
                ):
                    return str(version["addonVersion"])
        return ""
