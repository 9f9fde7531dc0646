"""The control plane of EKS, who may log in to it, and its add-ons."""

from typing import Any

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.base import AwsHandler, issues_error, issues_text, not_ours, tags_of
from activities.clouds.eks.handlers.updates import Updates
from activities.clouds.eks.wanted.control_plane import CLUSTER, SECURITY_GROUP
from activities.clouds.eks.wanted.network import SUBNETS
from activities.clouds.lifecycle.handler import ABSENT, Found, State, Wanted
from activities.clouds.versions import minor_of, next_minor
from api_types.errors import Busy, InvalidInput, PermissionDenied
from api_types.messages.clouds import CloudAccount

VERSION = "version"
"""The name of the fact with the version of Kubernetes: of the control plane, and of a node group."""

_CLUSTER_STATES = {
    "CREATING": State.PENDING,
    "PENDING": State.PENDING,
    "UPDATING": State.PENDING,
    "ACTIVE": State.READY,
    "FAILED": State.BROKEN,
    "DELETING": State.DELETING,
}
_ZONES_MIN = 2


class ClusterHandler(AwsHandler):
    """The control plane. Its version goes up by one minor at a time; nothing else of it is changed."""

    def __init__(self, clients: AwsClients, account: CloudAccount) -> None:
        super().__init__(clients, account)
        self._updates = Updates()

    def look(self, wanted: Wanted) -> Found:
        """Find it by its name; compare the version."""
        cluster = self.clients.read("eks", "describe_cluster", name=wanted.object.name).get("cluster")
        if cluster is None:
            return ABSENT
        if foreign := not_ours(tags_of(cluster, "tags"), wanted):
            return foreign
        status, version = str(cluster["status"]), str(cluster.get("version", ""))
        group = str(cluster.get("resourcesVpcConfig", {}).get("clusterSecurityGroupId", "") or "")
        facts = {"id": wanted.object.name, VERSION: version} | ({SECURITY_GROUP: group} if group else {})
        state = _CLUSTER_STATES.get(status, State.PENDING)
        health = cluster.get("health", {}).get("issues", ())
        issues = issues_text(health)
        if state is State.READY and any(call[VERSION] != version for call in self.expected(wanted, "create_cluster")):
            return Found(State.DIFFERS, wanted.object.name, facts, f"version {version}", changes=(VERSION,))
        reason = ": ".join(text for text in (f"status {status}" if state is not State.READY else "", issues) if text)
        cause = issues_error(health) if state is State.BROKEN else None
        return Found(state, wanted.object.name, facts, reason, cause=cause)

    def create(self, wanted: Wanted) -> None:
        """Create it; where EKS has no room in a zone, in the subnets of the others. Raises InvalidInput if these are too few."""
        given = self.filled(wanted.object.calls[0], wanted, {})
        zones = self.clients.create_cluster(given)
        if not zones:
            return
        there = wanted.known.get(SUBNETS, {})
        usable = {name: subnet for name, subnet in there.items() if name.partition("-")[2] in zones}
        if len({name.partition("-")[2] for name in usable}) < _ZONES_MIN:
            raise InvalidInput(f"EKS takes clusters of this account in {', '.join(zones)}; name {_ZONES_MIN} of these zones in node pools")
        network: dict[str, Any] = given["resourcesVpcConfig"]
        subnets = [subnet for subnet in network["subnetIds"] if subnet in usable.values()]
        self.clients.create("eks", "create_cluster", **{**given, "resourcesVpcConfig": {**network, "subnetIds": subnets}})

    def update(self, wanted: Wanted, found: Found) -> None:
        """Order the next minor version. Raises InvalidInput for a lower one."""
        there = found.facts[VERSION]
        for call in self.expected(wanted, "create_cluster"):
            if minor_of(call[VERSION]) < minor_of(there):
                raise InvalidInput(
                    f"cluster {wanted.object.name} has version {there}, and kubernetesVersion is {call[VERSION]}: it cannot go down"
                )
            self._updates.order(
                self.clients, "update_cluster_version", wanted.object.name, {"clusterName": wanted.object.name}, version=next_minor(there)
            )

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete it. Raises Busy while it is created or changed, which EKS refuses; Dependency while it has node groups."""
        if found.state is State.PENDING:
            raise Busy(f"cluster {wanted.object.name} has {found.reason}")
        self.clients.delete("eks", "delete_cluster", name=wanted.object.name)


class AccessEntryHandler(AwsHandler):
    """The entry of our own role. One without our tags is used and never deleted: EKS made it for the creator of the cluster, or others."""

    def look(self, wanted: Wanted) -> Found:
        """Find it by its principal; compare its policies."""
        who = self._who(wanted)
        entry = self.clients.read("eks", "describe_access_entry", **who).get("accessEntry")
        if not entry:
            return ABSENT
        listed = self.clients.listed("eks", "list_associated_access_policies", "associatedAccessPolicies", **who)
        there = {each["policyArn"] for each in listed}
        missing = [call["policyArn"] for call in self.expected(wanted, "associate_access_policy") if call["policyArn"] not in there]
        state, foreign = State.DIFFERS if missing else State.READY, not_ours(tags_of(entry, "tags"), wanted)
        shared = foreign.reason if foreign else ""
        return Found(state, wanted.object.name, {"id": wanted.object.name}, changes=tuple(missing), shared=shared)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete it; it goes with the cluster too."""
        del found
        self.clients.delete("eks", "delete_access_entry", **self._who(wanted))

    def _who(self, wanted: Wanted) -> dict[str, str]:
        return {"clusterName": wanted.owner.base, "principalArn": wanted.object.name}


# `DEGRADED` is what an add-on is whose pods have no nodes yet: waited for.
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
    """An add-on. It follows the control plane: after each minor version it becomes what EKS has as the default for that."""

    def __init__(self, clients: AwsClients, account: CloudAccount) -> None:
        super().__init__(clients, account)
        self._updates = Updates()

    def look(self, wanted: Wanted) -> Found:
        """Find it by its name; compare its version where the control plane has another one than when it was last Ready."""
        name = wanted.object.name
        addon = self.clients.read("eks", "describe_addon", clusterName=wanted.owner.base, addonName=name).get("addon")
        if addon is None:
            return ABSENT
        if foreign := not_ours(tags_of(addon, "tags"), wanted):
            return foreign
        state = _ADDON_STATES.get(str(addon["status"]), State.PENDING)
        issues = issues_text(addon.get("health", {}).get("issues", ()))
        there, made_for = str(addon.get("addonVersion", "")), wanted.known.get(wanted.object.key, {}).get(_FOR_KUBERNETES, "")
        kubernetes = wanted.known.get(CLUSTER, {}).get(VERSION, "") or made_for
        if state is State.READY and kubernetes and not made_for:
            made_for = self._made_for(name, there, kubernetes)
        facts = {"id": name, VERSION: there}
        if state is State.READY and made_for and made_for != kubernetes and self._default(name, kubernetes) not in ("", there):
            return Found(State.DIFFERS, name, {**facts, _FOR_KUBERNETES: made_for}, f"{there} is for {made_for}", changes=(VERSION,))
        reason = ": ".join(text for text in (f"status {addon['status']}" if addon["status"] != "ACTIVE" else "", issues) if text)
        return Found(state, name, {**facts, **({_FOR_KUBERNETES: kubernetes} if kubernetes else {})}, reason)

    def update(self, wanted: Wanted, found: Found) -> None:
        """Order the default version. What users have set stays."""
        del found
        name, kubernetes = wanted.object.name, wanted.known.get(CLUSTER, {}).get(VERSION, "")
        who = {"clusterName": wanted.owner.base, "addonName": name}
        version = self._default(name, kubernetes)
        self._updates.order(self.clients, "update_addon", f"add-on {name}", who, addonVersion=version, resolveConflicts="PRESERVE")

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete it with its pods."""
        del found
        self.clients.delete("eks", "delete_addon", clusterName=wanted.owner.base, addonName=wanted.object.name, preserve=False)

    def _made_for(self, name: str, there: str, kubernetes: str) -> str:
        """Give the version of Kubernetes that an add-on was installed for, where that is not known any more."""
        offered: dict[str, bool] = {}
        try:
            for addon in self.clients.listed("eks", "describe_addon_versions", "addons", addonName=name):
                for version in addon.get("addonVersions", ()):
                    if version["addonVersion"] == there:
                        offered |= {str(each["clusterVersion"]): bool(each.get("defaultVersion")) for each in version["compatibilities"]}
        except PermissionDenied:
            return kubernetes
        defaults = [each for each, is_default in offered.items() if is_default]
        if kubernetes in (defaults or offered):
            return kubernetes
        older = [each for each in defaults or offered if minor_of(each) < minor_of(kubernetes)]
        return max(older, key=minor_of, default=kubernetes)

    def _default(self, name: str, kubernetes: str) -> str:
        """Give the version that EKS installs where none is asked for; empty if it says none."""
        for addon in self.clients.listed("eks", "describe_addon_versions", "addons", addonName=name, kubernetesVersion=kubernetes):
            for version in addon.get("addonVersions", ()):
                if any(
                    each.get("defaultVersion") and each.get("clusterVersion") == kubernetes for each in version.get("compatibilities", ())
                ):
                    return str(version["addonVersion"])
        return ""
