"""List the leftovers of a GKE cluster in its project.

An object belongs to the cluster if it has the owner mark, or if the cluster created it.
In the second case only this cluster uses its network, and Kubernetes has written the
Service into its description. Other objects in the cluster's network are listed and
never deleted.

Load balancers of users, and all volumes of their claims, belong to the users. An
exception are load balancers of a cluster that was emptied before.
"""

import re
from collections.abc import Iterator

from activities.clouds.desired.owner import gcp_description, is_our_claim
from activities.clouds.gke.handlers.accounts import lost_description, read_policy
from activities.clouds.gke.load_balancers import BalancerSearch, is_kubernetes
from activities.clouds.gke.search import (
    CLUSTER_KIND,
    DISK,
    FILESTORE,
    FIREWALL,
    NETWORK,
    POLICY_MEMBER,
    ROLE_BINDING,
    ROUTE,
    SERVICE_ACCOUNT,
    SUBNETWORK,
    last_of,
)
from activities.clouds.gke.wanted.cluster import CLUSTER
from activities.clouds.gke.wanted.foundation import (
    ACCOUNT,
    BINDING,
    NODE_ROLE,
    SUBNET,
    VPC,
)
from api_types import labels
from api_types.errors import PermissionDenied
from api_types.messages.clouds import Leftover

# Routes that are deleted with the network, or with one of its peerings.
_ROUTES_OF_NETWORK = ("default-route-", "peering-route-")
_CLUSTER_LABEL = "goog-k8s-cluster-name"
_DISK_PREFIX = "pvc-"
_CSI_LABEL = "storage_gke_io_created-by"
_CLAIM_LABEL = "kubernetes_io_created-for_pvc_name"
_CLAIM = re.compile(r'"kubernetes\.io/created-for/pvc/name"\s*:\s*"([^"]*)"')


class GkeAudit(BalancerSearch):
    """One search for the leftovers of an account's cluster."""

    def leftovers(self) -> list[Leftover]:
        """Return all leftovers in an order in which they can be deleted."""
        cluster = self._cluster()
        clusters = [cluster] if cluster is not None else []
        found = [
            *self.load_balancers(),
            *self._firewalls(gone=cluster is None),
            *self._routes(gone=cluster is None),
            *self._disks(),
            *self._filestore(),
            *clusters,
            *self._instances(gone=cluster is None),
            *self._foundation(),
            *self._members(),
        ]
        return sorted(found, key=lambda each: bool(each.key))

    # Other objects that the cluster created

    def _firewalls(self, *, gone: bool) -> Iterator[Leftover]:
        """Yield firewall rules.

        GKE deletes its own rules with the cluster, so they are leftovers only once the
        cluster is `gone`.
        """
        for each in self._firewalls_of_network():
            if is_kubernetes(each):
                yield self._balancer(FIREWALL, each)
            elif not each.name.startswith(f"gke-{self._base}-"):
                yield self._foreign(FIREWALL, each)
            elif gone:
                yield self._made(FIREWALL, each, f"named after cluster {self._base}")

    def _routes(self, *, gone: bool) -> Iterator[Leftover]:
        """Yield routes, except the network's own routes.

        GKE deletes its own routes with the cluster, so they are leftovers only once the
        cluster is `gone`.
        """
        for each in self._api.every(
            "compute.routes", "list", {"project": self._project}
        ):
            if not self._is_network(each.network) or each.name.startswith(
                _ROUTES_OF_NETWORK
            ):
                continue
            if not each.name.startswith(f"gke-{self._base}-"):
                yield self._foreign(ROUTE, each)
            elif gone:
                yield self._made(ROUTE, each, f"named after cluster {self._base}")

    def _disks(self) -> Iterator[Leftover]:
        request = {
            "project": self._project,
            "filter": f"labels.{_CLUSTER_LABEL}={self._base}",
        }
        for _, scope in self._api.every("compute.disks", "aggregated_list", request):
            for each in scope.disks:
                cluster = dict(each.labels).get(_CLUSTER_LABEL)
                if cluster == self._base and each.name.startswith(_DISK_PREFIX):
                    claim = _CLAIM.search(each.description)
                    claim_name = claim[1] if claim else "unknown"
                    evidence = (
                        f"label {_CLUSTER_LABEL}={self._base}, of claim {claim_name}"
                    )
                    if claim is not None and is_our_claim(claim[1]):
                        yield self._made(DISK, each, evidence)
                    else:
                        theirs = self._foreign(DISK, each, evidence)
                        yield theirs.model_copy(update={"blocks": False})

    def _filestore(self) -> Iterator[Leftover]:
        try:
            instances = self._api.every(
                "filestore",
                "list_instances",
                {"parent": f"projects/{self._project}/locations/-"},
                self._region,
            )
        except PermissionDenied as error:
            if "enable the API" in error.message:
                # Without the API there are no instances.
                return
            raise
        for each in instances:
            if not any(
                last_of(network.network) == self._base for network in each.networks
            ):
                continue
            by, claim = (
                dict(each.labels).get(_CSI_LABEL, ""),
                dict(each.labels).get(_CLAIM_LABEL, ""),
            )
            evidence = (
                f"label {_CSI_LABEL}={by} in network {self._base}, of claim {claim}"
                if by
                else self._others
            )
            ours = bool(by) and is_our_claim(claim)
            yield Leftover(
                kind=FILESTORE,
                id=each.name,
                evidence=evidence,
                ours=ours,
                link=self._link("filestore/instances"),
            )

    def _instances(self, *, gone: bool) -> Iterator[Leftover]:
        for each in self._aggregated("compute.instances", "instances"):
            if any(
                self._is_network(interface.network)
                for interface in each.network_interfaces
            ):
                is_node = dict(each.labels).get(_CLUSTER_LABEL) == self._base
                if gone or not is_node:
                    yield self._foreign("Instance", each)
        for each in self._regional("compute.routers"):
            if self._is_network(each.network):
                yield self._foreign("Router", each)

    # Objects of the plan

    def _cluster(self) -> Leftover | None:
        name = (
            f"projects/{self._project}/locations/{self._region}/clusters/{self._base}"
        )
        found = self._api.find("container", "get_cluster", {"name": name})
        if found is None:
            return None
        description = gcp_description(self._owner, CLUSTER)
        if dict(found.resource_labels).get(labels.GCP_OWNER) == self._owner.digits:
            evidence = f"label {labels.GCP_OWNER}={self._owner.digits}"
        elif found.description == description:
            # Other users can easily remove labels. The code that creates the cluster
            # checks both too.
            evidence = f"description {description}"
        else:
            return None
        return Leftover(
            kind=CLUSTER_KIND,
            id=name,
            evidence=evidence,
            ours=True,
            key=CLUSTER,
            link=self._link("kubernetes/list/overview"),
        )

    def _foundation(self) -> Iterator[Leftover]:
        place = {"project": self._project}
        for each in self._regional("compute.subnetworks"):
            ours = self._is_subnet(each.self_link) and self._is_network(each.network)
            if ours and each.description == gcp_description(self._owner, SUBNET):
                yield self._made(SUBNETWORK, each, each.description, SUBNET)
            elif self._is_network(each.network):
                yield self._foreign(SUBNETWORK, each)
        network = self._api.find(
            "compute.networks", "get", {**place, "network": self._base}
        )
        if network is not None and network.description == gcp_description(
            self._owner, VPC
        ):
            yield self._made(NETWORK, network, network.description, VPC)
        account = self._api.find(
            "iam",
            "get_service_account",
            {"name": f"projects/{self._project}/serviceAccounts/{self._email}"},
        )
        mark = gcp_description(self._owner, ACCOUNT)
        if account is None:
            return
        unmarked = ""
        if account.description != mark:
            unmarked = lost_description(account, mark, is_known=False)
        if account.description == mark or unmarked:
            link = self._link("iam-admin/serviceaccounts")
            yield Leftover(
                kind=SERVICE_ACCOUNT,
                id=account.email,
                evidence=account.description,
                ours=True,
                key=ACCOUNT,
                link=link,
                unmarked=unmarked,
            )

    def _members(self) -> Iterator[Leftover]:
        link = self._link("iam-admin/iam")
        try:
            policy = read_policy(self._api, f"projects/{self._project}")
        except PermissionDenied:
            # A credential that may not read the policy could not write it either, so
            # the cluster has an account that its users made.
            return
        for binding in policy.bindings:
            for member in binding.members:
                if member.startswith(f"deleted:serviceAccount:{self._email}?"):
                    evidence = (
                        f"member of {binding.role}: a deleted account of this cluster"
                    )
                    yield Leftover(
                        kind=POLICY_MEMBER,
                        id=f"{binding.role} {member}",
                        evidence=evidence,
                        ours=True,
                        link=link,
                    )
                elif (
                    member == f"serviceAccount:{self._email}"
                    and binding.role == NODE_ROLE
                ):
                    evidence = "the account of this cluster"
                    yield Leftover(
                        kind=ROLE_BINDING,
                        id=f"{binding.role} {member}",
                        evidence=evidence,
                        ours=True,
                        key=BINDING,
                        link=link,
                    )
