"""GKE as a cloud that clusters are created at: one credential in one region."""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from activities.clouds.desired import INVALID_INPUT, Desired, Problem
from activities.clouds.gke import preflight
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.audit import Audit
from activities.clouds.gke.clients import GoogleClients, KeyClients
from activities.clouds.gke.handlers.accounts import AccountHandler, BindingHandler
from activities.clouds.gke.handlers.clusters import WANTED_VERSION, ClusterHandler
from activities.clouds.gke.handlers.networks import NetworkHandler, SubnetworkHandler
from activities.clouds.gke.handlers.node_pools import NodePoolHandler
from activities.clouds.gke.handlers.services import ServiceHandler
from activities.clouds.gke.sweep import LOOK_SECONDS, Sweep
from activities.clouds.gke.versions import is_below
from activities.clouds.gke.wanted.cluster import CLUSTER
from activities.clouds.gke.wanted.inputs import GkeFacts, GkeInputs
from activities.clouds.gke.wanted.objects import gke_objects
from activities.clouds.lifecycle.handler import Handler
from activities.clouds.owner import owner_named, owner_of, pool_name
from activities.clouds.pools import CloudPool, cloud_pools
from activities.clouds.provider import BearerToken, Endpoint
from api_types.errors import CredentialsInvalid, NotYet
from api_types.messages.clouds import AuditCloud, CloudAccount, Facts, Leftover, WorkClass
from api_types.resources.inference_class import GkeNodes, InferenceClass
from api_types.resources.inference_cluster import GkeCluster, InferenceCluster
from api_types.sections.clouds import GkeSettings

PROJECT_OVERRIDDEN = "ProjectOverridden"

# A token is renewed so long before it ends.
_MARGIN_SECONDS = 300.0


class _NewHandler(Protocol):
    def __call__(self, api: GoogleApi) -> Handler: ...


_HANDLERS: Mapping[str, tuple[_NewHandler, WorkClass]] = {
    "Service": (ServiceHandler, "Medium"),
    "Network": (NetworkHandler, "Medium"),
    "Subnetwork": (SubnetworkHandler, "Medium"),
    "ServiceAccount": (AccountHandler, "Medium"),
    "IAM binding": (BindingHandler, "Quick"),
    "Cluster": (ClusterHandler, "ControlPlane"),
    "NodePool": (NodePoolHandler, "NodePool"),
}


class GkeProvider:
    """Implements `activities.clouds.provider.Provider`. Raises CredentialsInvalid for a credential that is none.

    `look_seconds` is between two looks at the deletion of a leftover.
    """

    def __init__(
        self,
        credential_text: str,
        region: str,
        settings: GkeSettings,
        clients: Callable[[str], GoogleClients] = KeyClients,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._clients = clients(credential_text)
        self._api = GoogleApi(self._clients)
        self._region = region
        self._settings = settings
        self._look_seconds = look_seconds

    def pinned(self, account: CloudAccount) -> CloudAccount:
        """Give the account with a project: that of the credential, unless one is pinned or named."""
        if account.project:
            return account
        if not self._clients.project:
            raise CredentialsInvalid("the credential names no project")
        return account.model_copy(update={"project": self._clients.project})

    def plan(
        self, account: CloudAccount, cluster: InferenceCluster, classes: Mapping[str, InferenceClass], known: Mapping[str, Facts]
    ) -> Desired:
        """Give what is wanted, checked at the cloud as far as it is not there yet. Raises PermissionDenied before the first object."""
        project = account.project
        desired = gke_objects(account.installation, cluster, classes, self._settings, GkeFacts(project))
        gke = cluster.spec.cluster.gke
        if not desired.objects or gke is None:
            return desired
        if fixed := list(_fixed(gke, project, known.get(CLUSTER, {}))):
            return Desired((), (*desired.refused, *fixed), desired.warnings)
        warnings = [*desired.warnings, *self._project_warnings(project)]
        if not known:
            warnings += preflight.permissions(self._api, project)
        inputs = GkeInputs(owner_of(account.installation, cluster), gke, self._settings, project)
        keys = {each.key for each in desired.objects}
        pools: list[CloudPool[GkeNodes]] = cloud_pools(cluster, classes, "GKE", lambda block: block.gke)[0]
        new = [pool for pool in pools if pool.key in keys and pool.key not in known]
        checked = preflight.check(self._api, inputs, new, cluster=CLUSTER not in known)
        return _with(desired, checked, warnings, nothing_there=not known)

    def _project_warnings(self, project: str) -> list[Problem]:
        own = self._clients.project
        return [Problem(PROJECT_OVERRIDDEN, "", f"the cluster is in project {project}, the credential in {own}")] if own != project else []

    def work_class(self, kind: str) -> WorkClass:
        """Give how long the work on a kind of object may take."""
        return _HANDLERS[kind][1] if kind in _HANDLERS else "Quick"

    def handler(self, account: CloudAccount, kind: str) -> Handler | None:
        """Give a new handler, for one piece of work on one object."""
        del account  # desired objects name their project
        return _HANDLERS[kind][0](self._api) if kind in _HANDLERS else None

    def cloud_cluster(self, account: CloudAccount) -> str:
        """Name the cluster."""
        return owner_named(account.installation, account.cluster, account.cluster_uid).base

    def endpoint(self, account: CloudAccount) -> Endpoint:
        """Read the endpoint of the control plane and its authority."""
        name = f"projects/{account.project}/locations/{self._region}/clusters/{self.cloud_cluster(account)}"
        found = self._api.read("container", "get_cluster", {"name": name})
        authority = found.master_auth.cluster_ca_certificate
        if not found.endpoint or not authority:
            raise NotYet(f"cluster {found.name} has no endpoint yet: status {found.status.name}")
        try:
            text = base64.b64decode(authority, validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise NotYet(f"cluster {found.name} gives a certificate authority that cannot be read") from None
        return Endpoint(f"https://{found.endpoint}", text)

    def token(self, account: CloudAccount) -> BearerToken:
        """Fetch an access token of the credential, which is to be renewed five minutes before it ends."""
        del account  # it is good for every cluster of the project
        token = self._clients.token()
        return BearerToken(token.text, token.expires_at - _MARGIN_SECONDS)

    def audit(self, order: AuditCloud) -> Sequence[Leftover]:
        """List what is left, what uses others first."""
        return Audit(self._api, order.account, emptied=order.emptied).leftovers()

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        """Delete what the cluster made. Nothing is done with what is not ours, or is of the inventory and so has a handler."""
        if leftover.ours and leftover.key not in order.keys:
            Sweep(self._api, order.account, self._look_seconds, emptied=order.emptied).delete(leftover)


def _fixed(gke: GkeCluster, project: str, cluster: Facts) -> Iterator[Problem]:
    """Refuse what a cluster keeps for its life, and a lower version than the one that was asked for before."""
    if gke.project and gke.project != project:
        text = f"the cluster is in project {project} and stays there: {gke.project} can only be used by another cluster"
        yield Problem(INVALID_INPUT, "", text)
    before = cluster.get(WANTED_VERSION, "")
    if before and is_below(gke.kubernetes_version, before):
        yield Problem(INVALID_INPUT, "", f'kubernetesVersion "{gke.kubernetes_version}" is below "{before}": a cluster is never downgraded')


def _with(desired: Desired, checked: preflight.Checked, warnings: Sequence[Problem], *, nothing_there: bool) -> Desired:
    """Give what is wanted after the checks: nothing of a new cluster that would be refused, of another one all but the refused pools."""
    refused = (*desired.refused, *checked.refused)
    said = (*warnings, *checked.warnings)
    if checked.refused and nothing_there:
        return Desired((), refused, said)
    keys = {f"pool/{pool_name(problem.at.removeprefix('pool '))}" for problem in checked.refused if problem.at}
    return Desired(tuple(each for each in desired.objects if each.key not in keys), refused, said)
