"""EKS as a cloud provider: one credential in one region."""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from activities.clouds.desired.owner import ClusterOwner, owner_at
from activities.clouds.desired.plan import (
    INVALID_INPUT,
    Desired,
    PlanProblem,
    refused_cluster,
)
from activities.clouds.desired.versions import minor_of, next_minor
from activities.clouds.eks.access import endpoint_of, token_of
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import read_credential
from activities.clouds.eks.denials import ExplainingHandler, explained
from activities.clouds.eks.handlers.base import tags_of
from activities.clouds.eks.handlers.table import HANDLERS, WORK
from activities.clouds.eks.leftovers.audit import EksAudit
from activities.clouds.eks.preflight import Preflight
from activities.clouds.eks.wanted.control_plane import ACCESS
from activities.clouds.eks.wanted.objects import eks_objects
from activities.clouds.eks.wanted.partitions import partition_of
from activities.clouds.eks.wanted.zones import candidates
from activities.clouds.lifecycle.handler import ObjectHandler
from activities.clouds.permitted import PermittedSources
from activities.clouds.provider import ApiServerEndpoint, BearerToken
from api_types import labels
from api_types.errors import CredentialsInvalid, InvalidInput, PermissionDenied
from api_types.messages.clouds import (
    AuditCloud,
    CloudAccount,
    Facts,
    Leftover,
    WorkClass,
)
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.sections.clouds import EksSettings

_ASSUMED = re.compile(r"arn:[^:]+:sts::[0-9]+:assumed-role/([^/]+)/.*")
_ROOT = re.compile(r"arn:[^:]+:iam::[0-9]+:root")
_COMPARED_WHEN_CREATED = "CapacityBlockUnknown"


@dataclass(frozen=True)
class _Identity:
    """The identity of the credential: account number, and role or user with access."""

    account: str
    principal: str


class EksProvider:
    """EKS with one credential in one region.

    Raises CredentialsInvalid for a malformed credential. `unused_since` contains the
    unused network interfaces by the digits of their cluster. It outlives clients, which
    are replaced whenever a credential is rejected.
    """

    def __init__(
        self,
        credential_text: str,
        region: str,
        settings: EksSettings,
        endpoint_url: str | None = None,
        *,
        unused_since: dict[str, dict[str, float]] | None = None,
        permitted: PermittedSources | None = None,
    ) -> None:
        credential = read_credential(credential_text, permitted)
        self.clients = AwsClients(credential, region, endpoint_url, permitted=permitted)
        self._settings = settings
        self._handlers: dict[tuple[str, str], ExplainingHandler] = {}
        self._identity: _Identity | None = None
        self._audits: dict[str, EksAudit] = {}
        self._unused_since = {} if unused_since is None else unused_since
        self._lock = threading.Lock()

    def pinned(self, account: CloudAccount) -> CloudAccount:
        """Return the account with its number.

        Raises CredentialsInvalid if the credential belongs to another account than the
        pinned one.
        """
        number = self._identified().account
        if account.project and account.project != number:
            raise CredentialsInvalid(
                f"Secret {account.secret} has a credential of AWS account {number}, and the "
                f"cluster is in {account.project}: store a credential of that account"
            )
        return account.model_copy(update={"project": number})

    def plan(
        self,
        account: CloudAccount,
        cluster: InferenceCluster,
        classes: Mapping[str, InferenceClass],
        known: Mapping[str, Facts],
    ) -> Desired:
        """Read facts from AWS, run the checks, and compute the desired objects.

        EKS upgrades one minor version at a time, so the objects have the version of the
        next step.
        """
        account = self.pinned(account)
        eks = cluster.spec.cluster.eks
        if eks is None:
            raise InvalidInput("the cluster has no block for EKS")
        owner = owner_at(account)
        wanted, there = eks.kubernetes_version, self._version(owner)
        target = self._target(owner, wanted, there)
        questions = Preflight(self.clients, owner, cluster, classes, known)
        principal = self._principal(self._identified().principal, known)
        facts = questions.facts(principal, exists=bool(there))
        origin = cluster.spec.cluster.model_copy(
            update={"eks": eks.model_copy(update={"kubernetes_version": target})}
        )
        stepped = cluster.model_copy(
            update={"spec": cluster.spec.model_copy(update={"cluster": origin})}
        )
        desired = eks_objects(
            account.installation, stepped, classes, self._settings, facts
        )
        if minor_of(wanted) < minor_of(there):
            text = (
                f"the cluster has version {there} and cannot be downgraded to {wanted}"
            )
            questions.refused.append(PlanProblem(INVALID_INPUT, "", text))
        if not refused_cluster(desired.refused):
            free = candidates(eks.region, self._settings, facts)
            questions.check(target, there, facts, free)
        refused = (*desired.refused, *questions.refused)
        existing = {
            f"pool {pool.name}"
            for pool in cluster.spec.node_pools or ()
            if questions.exists(pool)
        }
        warnings = [
            each
            for each in desired.warnings
            if not (each.reason == _COMPARED_WHEN_CREATED and each.at in existing)
        ]
        if target != wanted:
            text = (
                "EKS is upgraded one minor version at a time: "
                f"from {there} to {wanted} through {target}"
            )
            warnings.append(PlanProblem("VersionSteps", "", text))
        objects = () if refused_cluster(refused) else desired.objects
        if objects:
            questions.check_account(principal, objects)
        return Desired(objects, refused, (*warnings, *questions.warnings))

    def work_class(self, kind: str) -> WorkClass:
        return WORK.get(kind, "Quick")

    def handler(self, account: CloudAccount, kind: str) -> ObjectHandler | None:
        """Return the handler of a kind, or None for kinds inside the cluster.

        Raises CredentialsInvalid for a credential of another account.
        """
        made = HANDLERS.get(kind)
        if made is None:
            return None
        # In another account no object would be found, so all objects would be created
        # again.
        account = self.pinned(account)
        with self._lock:
            return self._handlers.setdefault(
                (account.project, kind), ExplainingHandler(made(self.clients, account))
            )

    def cloud_cluster(self, account: CloudAccount) -> str:
        return owner_at(account).base

    def endpoint(self, account: CloudAccount) -> ApiServerEndpoint:
        """Return the endpoint. Raises NotYet while the cluster has none."""
        return endpoint_of(self.clients, self.cloud_cluster(account))

    def token(self, account: CloudAccount) -> BearerToken:
        """Sign a token for the API server, without a call."""
        return token_of(self.clients, self.cloud_cluster(account))

    def audit(self, order: AuditCloud) -> Sequence[Leftover]:
        """List the leftovers in an order of deletion, foreign ones last."""
        return self._audit(order).leftovers(order)

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        """Delete a leftover if its marks still show that the cluster created it.

        Raises Dependency while it is in use.
        """
        account = self.pinned(order.account)
        with explained(self.clients, owner_at(account), order.known):
            self._audit(order).sweep(order, leftover)

    def _audit(self, order: AuditCloud) -> EksAudit:
        account = self.pinned(order.account)
        with self._lock:
            digits = owner_at(account).digits
            return self._audits.setdefault(
                digits,
                EksAudit(
                    self.clients, account, self._unused_since.setdefault(digits, {})
                ),
            )

    def _identified(self) -> _Identity:
        """Return the identity of the credential, read once.

        Raises CredentialsInvalid for the root user: no policy limits it.
        """
        if self._identity is None:
            answer = self.clients.read("sts", "get_caller_identity")
            if _ROOT.fullmatch(str(answer["Arn"])):
                raise CredentialsInvalid(
                    f"the credential is the root user of AWS account {answer['Account']}, "
                    "which no policy limits; create a role with the policies of "
                    "deploy/clouds/aws, store it as role_arn, and delete the keys of the "
                    "root user"
                )
            self._identity = _Identity(str(answer["Account"]), str(answer["Arn"]))
        return self._identity

    def _principal(self, arn: str, known: Mapping[str, Facts]) -> str:
        """Return the ARN of a session's role, because access is granted to roles.

        The ARN of a role has a path, and the ARN of its session does not. If the role
        cannot be read, a known access entry for a role of that name is used.
        """
        session = _ASSUMED.fullmatch(arn)
        if session is None:
            return arn
        try:
            role = self.clients.read("iam", "get_role", RoleName=session[1]).get(
                "Role", {}
            )
        except PermissionDenied:
            role = {}
        partition = partition_of(self.clients.region)
        roles = f"arn:{partition}:iam::{self._identified().account}:role/"
        entries = [
            facts.get("id", "")
            for key, facts in known.items()
            if key.startswith(ACCESS)
        ]
        same = [
            each
            for each in entries
            if each.startswith(roles) and each.endswith(f"/{session[1]}")
        ]
        there = same[0] if same else f"{roles}{session[1]}"
        return str(role.get("Arn") or there)

    def _version(self, owner: ClusterOwner) -> str:
        """Return the version of the control plane, or "" if this cluster has none."""
        found = self.clients.read("eks", "describe_cluster", name=owner.base).get(
            "cluster"
        )
        return (
            str(found.get("version", ""))
            if found and tags_of(found, "tags").get(labels.CLOUD_OWNER) == owner.digits
            else ""
        )

    def _target(self, owner: ClusterOwner, wanted: str, there: str) -> str:
        """Return the version of the next step.

        It is one minor version above the control plane, but only after all node groups
        have the version of the control plane.
        """
        if not minor_of(there) or minor_of(wanted) <= minor_of(there):
            return wanted
        return there if self._behind(owner, there) else next_minor(there)

    def _behind(self, owner: ClusterOwner, there: str) -> bool:
        """Return True if a node group is older than the control plane."""
        for name in self.clients.listed(
            "eks", "list_nodegroups", "nodegroups", clusterName=owner.base
        ):
            group = (
                self.clients.read(
                    "eks",
                    "describe_nodegroup",
                    clusterName=owner.base,
                    nodegroupName=name,
                ).get("nodegroup")
                or {}
            )
            if 0 < minor_of(str(group.get("version", ""))) < minor_of(there):
                return True
        return False
