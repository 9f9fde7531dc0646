"""GKE as a cloud provider: one credential in one region."""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from activities.clouds.desired.owner import owner_named, owner_of, pool_name
from activities.clouds.desired.plan import INVALID_INPUT, Desired, PlanProblem
from activities.clouds.desired.pools import CloudPool, cloud_pools
from activities.clouds.gke import preflight
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.audit import GkeAudit
from activities.clouds.gke.clients import CredentialClients, GoogleClients
from activities.clouds.gke.handlers.accounts import AccountHandler, BindingHandler
from activities.clouds.gke.handlers.clusters import (
    NODE_ACCOUNT,
    WANTED_VERSION,
    GkeClusterHandler,
)
from activities.clouds.gke.handlers.networks import NetworkHandler, SubnetworkHandler
from activities.clouds.gke.handlers.node_pools import NodePoolHandler
from activities.clouds.gke.handlers.services import ServiceHandler
from activities.clouds.gke.sweep import LOOK_SECONDS, Sweep
from activities.clouds.gke.versions import is_below
from activities.clouds.gke.wanted.cluster import CLUSTER
from activities.clouds.gke.wanted.inputs import GkeFacts, GkeInputs
from activities.clouds.gke.wanted.objects import gke_objects, project_problem
from activities.clouds.lifecycle.handler import ObjectHandler
from activities.clouds.provider import PROJECT_KEY, ApiServerEndpoint, BearerToken
from api_types.errors import CredentialsInvalid, InvalidInput, NotYet
from api_types.messages.clouds import (
    AuditCloud,
    CloudAccount,
    Facts,
    Leftover,
    WorkClass,
)
from api_types.resources.inference_class import GkeNodes, InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.sections.clouds import GkeSettings

_NODE_ACCOUNT = "ServiceAccount"
PROJECT_OVERRIDDEN = "ProjectOverridden"

# A token is renewed this long before it expires.
_MARGIN_SECONDS = 300.0


class _NewHandler(Protocol):
    def __call__(self, api: GoogleApi) -> ObjectHandler: ...


_HANDLERS: Mapping[str, tuple[_NewHandler, WorkClass]] = {
    "Service": (ServiceHandler, "Medium"),
    "Network": (NetworkHandler, "Medium"),
    "Subnetwork": (SubnetworkHandler, "Medium"),
    _NODE_ACCOUNT: (AccountHandler, "Medium"),
    "IAM binding": (BindingHandler, "Quick"),
    "Cluster": (GkeClusterHandler, "ControlPlane"),
    "NodePool": (NodePoolHandler, "NodePool"),
}


class GkeProvider:
    """Implements `activities.clouds.provider.Provider`.

    Raises CredentialsInvalid for a malformed credential. `look_seconds` is the interval
    between two checks of a leftover's deletion.
    """

    def __init__(
        self,
        credential_text: str,
        region: str,
        settings: GkeSettings,
        clients: Callable[[str], GoogleClients] = CredentialClients,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._clients = clients(credential_text)
        self._api = GoogleApi(self._clients)
        self._region = region
        self._settings = settings
        self._look_seconds = look_seconds

    def pinned(self, account: CloudAccount) -> CloudAccount:
        """Return the account with its project.

        The default is the project of the credential. Raises CredentialsInvalid, also
        for a project in which the credential may not be used, and InvalidInput for text
        that is no project ID.
        """
        project = account.project or self._clients.project
        if not project:
            raise CredentialsInvalid(
                "the credential names no project: write project_id into its JSON, or the "
                f"key {PROJECT_KEY!r} into its Secret"
            )
        if problem := project_problem(project):
            raise InvalidInput(problem)
        self._clients.permit(project)
        return account.model_copy(update={"project": project})

    def plan(
        self,
        account: CloudAccount,
        cluster: InferenceCluster,
        classes: Mapping[str, InferenceClass],
        known: Mapping[str, Facts],
    ) -> Desired:
        """Compute the desired objects, and check the new ones at the cloud.

        Raises PermissionDenied before the first object is created.
        """
        project = account.project
        self._clients.permit(project)
        desired = gke_objects(
            account.installation, cluster, classes, self._settings, GkeFacts(project)
        )
        gke = cluster.spec.cluster.gke
        if not desired.objects or gke is None:
            return desired
        inputs = GkeInputs(
            owner_of(account.installation, cluster), gke, self._settings, project
        )
        if fixed := list(_fixed(inputs, known.get(CLUSTER, {}))):
            return Desired((), (*desired.refused, *fixed), desired.warnings)
        warnings = [*desired.warnings, *self._project_warnings(project)]
        if not known:
            kinds = {each.kind for each in desired.objects}
            warnings += preflight.permissions(
                self._api, project, account=_NODE_ACCOUNT in kinds
            )
        keys = {each.key for each in desired.objects}
        pools: list[CloudPool[GkeNodes]] = cloud_pools(
            cluster, classes, "GKE", lambda block: block.gke
        )[0]
        new = [pool for pool in pools if pool.key in keys and pool.key not in known]
        checked = preflight.check(self._api, inputs, new, cluster=CLUSTER not in known)
        return _with(desired, checked, warnings, nothing_there=not known)

    def _project_warnings(self, project: str) -> list[PlanProblem]:
        own = self._clients.project
        if own == project:
            return []
        text = f"the cluster is in project {project}, the credential in {own}"
        return [PlanProblem(PROJECT_OVERRIDDEN, "", text)]

    def work_class(self, kind: str) -> WorkClass:
        return _HANDLERS[kind][1] if kind in _HANDLERS else "Quick"

    def handler(self, account: CloudAccount, kind: str) -> ObjectHandler | None:
        """Return a new handler for one object, which names its project itself."""
        self._clients.permit(account.project)
        return _HANDLERS[kind][0](self._api) if kind in _HANDLERS else None

    def cloud_cluster(self, account: CloudAccount) -> str:
        return owner_named(
            account.installation, account.cluster, account.cluster_uid
        ).base

    def endpoint(self, account: CloudAccount) -> ApiServerEndpoint:
        """Return the endpoint of the control plane and its certificate authority."""
        self._clients.permit(account.project)
        location = f"projects/{account.project}/locations/{self._region}"
        name = f"{location}/clusters/{self.cloud_cluster(account)}"
        found = self._api.read("container", "get_cluster", {"name": name})
        authority = found.master_auth.cluster_ca_certificate
        if not found.endpoint or not authority:
            raise NotYet(
                f"cluster {found.name} has no endpoint yet: status {found.status.name}"
            )
        try:
            text = base64.b64decode(authority, validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise NotYet(
                f"Google returned a malformed certificate authority for cluster {found.name}"
            ) from None
        return ApiServerEndpoint(f"https://{found.endpoint}", text)

    def token(self, account: CloudAccount) -> BearerToken:
        """Fetch an access token. Its expiry is set five minutes early."""
        self._clients.permit(account.project)
        token = self._clients.token()
        return BearerToken(token.text, token.expires_at - _MARGIN_SECONDS)

    def audit(self, order: AuditCloud) -> Sequence[Leftover]:
        """List leftovers, in an order in which they can be deleted."""
        self._clients.permit(order.account.project)
        return GkeAudit(self._api, order.account, emptied=order.emptied).leftovers()

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        """Delete a leftover, unless it is foreign or in the inventory."""
        self._clients.permit(order.account.project)
        if leftover.ours and leftover.key not in order.keys:
            Sweep(
                self._api, order.account, self._look_seconds, emptied=order.emptied
            ).delete(leftover)


def _fixed(inputs: GkeInputs, cluster: Facts) -> Iterator[PlanProblem]:
    """Reject changes of project and node account, and downgrades of the cluster."""
    gke, project = inputs.gke, inputs.project
    if gke.project and gke.project != project:
        text = (
            f"the cluster is in project {project} and cannot be moved to {gke.project}; "
            "create another cluster there"
        )
        yield PlanProblem(INVALID_INPUT, "", text)
    account = cluster.get(NODE_ACCOUNT, "")
    if account and inputs.node_account != account:
        text = (
            f"the nodes of the cluster have the service account {account}, which cannot "
            f"be changed to {inputs.node_account}; create another cluster with it"
        )
        yield PlanProblem(INVALID_INPUT, "", text)
    before = cluster.get(WANTED_VERSION, "")
    if before and is_below(gke.kubernetes_version, before):
        yield PlanProblem(
            INVALID_INPUT,
            "",
            f'kubernetesVersion "{gke.kubernetes_version}" is below "{before}": a cluster '
            "cannot be downgraded",
        )


def _with(
    desired: Desired,
    checked: preflight.Checked,
    warnings: Sequence[PlanProblem],
    *,
    nothing_there: bool,
) -> Desired:
    """Return the desired objects after the checks.

    A new cluster with a rejection has no objects. An existing cluster has all objects
    except the rejected pools.
    """
    refused = (*desired.refused, *checked.refused)
    said = (*warnings, *checked.warnings)
    if checked.refused and nothing_there:
        return Desired((), refused, said)
    keys = {
        f"pool/{pool_name(problem.at.removeprefix('pool '))}"
        for problem in checked.refused
        if problem.at
    }
    return Desired(
        tuple(each for each in desired.objects if each.key not in keys), refused, said
    )
