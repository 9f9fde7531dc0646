"""EKS as a cloud: plan, handlers, access, audit and sweep for one credential in one region."""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from activities.clouds.desired import INVALID_INPUT, Desired, Problem, refused_cluster
from activities.clouds.eks.access import endpoint_of, token_of
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import read_credential
from activities.clouds.eks.handlers.base import AwsHandler, tags_of
from activities.clouds.eks.handlers.table import HANDLERS, WORK
from activities.clouds.eks.leftovers.audit import Audit
from activities.clouds.eks.preflight import Preflight
from activities.clouds.eks.wanted.control_plane import ACCESS
from activities.clouds.eks.wanted.objects import eks_objects
from activities.clouds.eks.wanted.partitions import partition_of
from activities.clouds.owner import Owner, owner_at
from activities.clouds.provider import BearerToken, Endpoint
from activities.clouds.versions import minor_of, next_minor
from api_types import labels
from api_types.errors import CredentialsInvalid, InvalidInput, PermissionDenied
from api_types.messages.clouds import AuditCloud, CloudAccount, Facts, Leftover, WorkClass
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.sections.clouds import EksSettings

_ASSUMED = re.compile(r"arn:[^:]+:sts::[0-9]+:assumed-role/([^/]+)/.*")
_COMPARED_WHEN_CREATED = "CapacityBlockUnknown"


@dataclass(frozen=True)
class _Identity:
    """Who the credential is of: the number of the account, and the role (or user) that log-ins are granted to."""

    account: str
    principal: str


class EksProvider:
    """EKS with one credential in one region. Raises CredentialsInvalid for a text that is no credential.

    `unused_since` is what is remembered of interfaces, by the digits of their cluster: it outlives clients, which are often made anew where
    a credential is refused.
    """

    def __init__(
        self,
        credential_text: str,
        region: str,
        settings: EksSettings,
        endpoint_url: str | None = None,
        unused_since: dict[str, dict[str, float]] | None = None,
    ) -> None:
        self.clients = AwsClients(read_credential(credential_text), region, endpoint_url)
        self._settings = settings
        self._handlers: dict[tuple[str, str], AwsHandler] = {}
        self._identity: _Identity | None = None
        self._audits: dict[str, Audit] = {}
        self._unused_since = {} if unused_since is None else unused_since
        self._lock = threading.Lock()

    def pinned(self, account: CloudAccount) -> CloudAccount:
        """Give the account with its number. Raises CredentialsInvalid for a credential of another account than the pinned one."""
        number = self._identified().account
        if account.project and account.project != number:
            raise CredentialsInvalid(
                f"Secret {account.secret} is of AWS account {number}, and the cluster is in {account.project}: give one of that"
            )
        return account.model_copy(update={"project": number})

    def plan(
        self, account: CloudAccount, cluster: InferenceCluster, classes: Mapping[str, InferenceClass], known: Mapping[str, Facts]
    ) -> Desired:
        """Ask AWS, check, and give the objects. A new minor version comes in steps: what is given is the next one."""
        account = self.pinned(account)
        eks = cluster.spec.cluster.eks
        if eks is None:
            raise InvalidInput("the cluster has no block for EKS")
        owner = owner_at(account)
        wanted, there = eks.kubernetes_version, self._version(owner)
        target = self._target(owner, wanted, there)
        questions = Preflight(self.clients, owner, cluster, classes, known)
        principal = self._principal(self._identified().principal, known)
        facts = questions.facts(principal)
        origin = cluster.spec.cluster.model_copy(update={"eks": eks.model_copy(update={"kubernetes_version": target})})
        stepped = cluster.model_copy(update={"spec": cluster.spec.model_copy(update={"cluster": origin})})
        desired = eks_objects(account.installation, stepped, classes, self._settings, facts)
        if minor_of(wanted) < minor_of(there):
            questions.refused.append(Problem(INVALID_INPUT, "", f"the cluster has version {there} and cannot go down to {wanted}"))
        if not refused_cluster(desired.refused):
            questions.check(target, there, facts.zones)
        refused = (*desired.refused, *questions.refused)
        existing = {f"pool {pool.name}" for pool in cluster.spec.node_pools or () if questions.exists(pool)}
        warnings = [each for each in desired.warnings if not (each.reason == _COMPARED_WHEN_CREATED and each.at in existing)]
        if target != wanted:
            text = f"EKS goes up by one minor version at a time: from {there} to {wanted} by way of {target}"
            warnings.append(Problem("VersionSteps", "", text))
        objects = () if refused_cluster(refused) else desired.objects
        if objects:
            questions.check_account(principal, objects)
        return Desired(objects, refused, (*warnings, *questions.warnings))

    def work_class(self, kind: str) -> WorkClass:
        """Give how long the work on a kind of object may take."""
        return WORK.get(kind, "Quick")

    def handler(self, account: CloudAccount, kind: str) -> AwsHandler | None:
        """Give the handler of a kind; None for those in the cluster. Raises CredentialsInvalid for a credential of another account."""
        made = HANDLERS.get(kind)
        if made is None:
            return None
        # In another account nothing would be found, and everything created once more.
        account = self.pinned(account)
        with self._lock:
            return self._handlers.setdefault((account.project, kind), made(self.clients, account))

    def cloud_cluster(self, account: CloudAccount) -> str:
        """Name the cluster at EKS."""
        return owner_at(account).base

    def endpoint(self, account: CloudAccount) -> Endpoint:
        """Ask EKS for the endpoint. Raises NotYet while the cluster has none."""
        return endpoint_of(self.clients, self.cloud_cluster(account))

    def token(self, account: CloudAccount) -> BearerToken:
        """Sign a token for the API server; no call is made."""
        return token_of(self.clients, self.cloud_cluster(account))

    def audit(self, order: AuditCloud) -> Sequence[Leftover]:
        """List what is left, in the order in which it can be deleted; what is not of the cluster last."""
        return self._audit(order).leftovers(order)

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        """Delete something that is left, if its marks still say that the cluster made it. Raises Dependency while it is in use."""
        self._audit(order).sweep(order, leftover)

    def _audit(self, order: AuditCloud) -> Audit:
        account = self.pinned(order.account)
        with self._lock:
            digits = owner_at(account).digits
            return self._audits.setdefault(digits, Audit(self.clients, account, self._unused_since.setdefault(digits, {})))

    def _identified(self) -> _Identity:
        """Ask once who the credential is of."""
        if self._identity is None:
            answer = self.clients.read("sts", "get_caller_identity")
            self._identity = _Identity(str(answer["Account"]), str(answer["Arn"]))
        return self._identity

    def _principal(self, arn: str, known: Mapping[str, Facts]) -> str:
        """Give the role of a session: log-ins are granted to roles. Its ARN has a path, which that of a session has not.

        Where the role may not be read, it is the one of that name whose entry is known.
        """
        session = _ASSUMED.fullmatch(arn)
        if session is None:
            return arn
        try:
            role = self.clients.read("iam", "get_role", RoleName=session[1]).get("Role", {})
        except PermissionDenied:
            role = {}
        roles = f"arn:{partition_of(self.clients.region)}:iam::{self._identified().account}:role/"
        entries = (facts.get("id", "") for key, facts in known.items() if key.startswith(ACCESS))
        there = next((each for each in entries if each.startswith(roles) and each.endswith(f"/{session[1]}")), "")
        return str(role.get("Arn") or there or f"{roles}{session[1]}")

    def _version(self, owner: Owner) -> str:
        """Give the version of the control plane; empty if there is none of this cluster."""
        found = self.clients.read("eks", "describe_cluster", name=owner.base).get("cluster")
        return str(found.get("version", "")) if found and tags_of(found, "tags").get(labels.CLOUD_OWNER) == owner.digits else ""

    def _target(self, owner: Owner, wanted: str, there: str) -> str:
        """Give the version to go to now: one minor above the control plane, and only when all node groups have followed it."""
        if not minor_of(there) or minor_of(wanted) <= minor_of(there):
            return wanted
        return there if self._behind(owner, there) else next_minor(there)

    def _behind(self, owner: Owner, there: str) -> bool:
        """Whether a node group is older than the control plane."""
        for name in self.clients.listed("eks", "list_nodegroups", "nodegroups", clusterName=owner.base):
            group = self.clients.read("eks", "describe_nodegroup", clusterName=owner.base, nodegroupName=name).get("nodegroup") or {}
            if 0 < minor_of(str(group.get("version", ""))) < minor_of(there):
                return True
        return False
