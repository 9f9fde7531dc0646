"""Roles and the policy of IAM, which have names in the whole account, and which service account in the cluster acts as which role."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from activities.clouds.eks.handlers.base import AwsHandler, not_ours, tags_of
from activities.clouds.lifecycle.handler import ABSENT, Found, State, Wanted
from api_types.errors import PermissionDenied

# IAM keeps so many versions of a policy.
_VERSIONS_MAX = 5
_TRUST = "trust policy"
# The names of what EKS makes for node groups begin so.
_EKS_PREFIX = "eks-"


class RoleHandler(AwsHandler):
    """A role with its policies. Others that were attached to it stay."""

    def look(self, wanted: Wanted) -> Found:
        """Find it by its name; compare who may take it, and its policies."""
        name = wanted.object.name
        role = self.clients.read("iam", "get_role", RoleName=name).get("Role")
        if role is None:
            return ABSENT
        if foreign := not_ours(tags_of(role), wanted):
            return foreign
        facts = {"id": name, "arn": str(role["Arn"])}
        trusted = _document(role.get("AssumeRolePolicyDocument"))
        expected = [_document(call["AssumeRolePolicyDocument"]) for call in self.expected(wanted, "create_role")]
        changes = [_TRUST for document in expected if document != trusted]
        attached = self._attached(wanted)
        changes += [
            f"policy {call['PolicyArn']}" for call in self.expected(wanted, "attach_role_policy") if call["PolicyArn"] not in attached
        ]
        return Found(State.DIFFERS if changes else State.READY, name, facts, changes=tuple(changes))

    def update(self, wanted: Wanted, found: Found) -> None:
        """Put back who may take it, and its policies."""
        if _TRUST in found.changes:
            for call in self.expected(wanted, "create_role"):
                document = call["AssumeRolePolicyDocument"]
                self.clients.update("iam", "update_assume_role_policy", RoleName=wanted.object.name, PolicyDocument=document)
        super().update(wanted, found)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Take everything from it, then delete it; also the instance profile that EKS made for it: nothing else says whose that is."""
        del found
        name = wanted.object.name
        for profile in list(self.clients.listed("iam", "list_instance_profiles_for_role", "InstanceProfiles", RoleName=name)):
            profile_name = profile["InstanceProfileName"]
            self.clients.delete("iam", "remove_role_from_instance_profile", InstanceProfileName=profile_name, RoleName=name)
            if str(profile_name).startswith(_EKS_PREFIX):
                # It costs nothing, so a credential that may not delete it ends no deletion.
                with contextlib.suppress(PermissionDenied):
                    self.clients.delete("iam", "delete_instance_profile", InstanceProfileName=profile_name)
        for arn in self._attached(wanted):
            self.clients.delete("iam", "detach_role_policy", RoleName=name, PolicyArn=arn)
        for inline in list(self.clients.listed("iam", "list_role_policies", "PolicyNames", RoleName=name)):
            self.clients.delete("iam", "delete_role_policy", RoleName=name, PolicyName=inline)
        self.clients.delete("iam", "delete_role", RoleName=name)

    def _attached(self, wanted: Wanted) -> list[str]:
        listed = self.clients.listed("iam", "list_attached_role_policies", "AttachedPolicies", RoleName=wanted.object.name)
        return [str(each["PolicyArn"]) for each in listed]


class PolicyHandler(AwsHandler):
    """A policy of our own. Another content is a new version of it."""

    def look(self, wanted: Wanted) -> Found:
        """Find it by its ARN; compare its default version."""
        arn = self._arn(wanted)
        policy = self.clients.read("iam", "get_policy", PolicyArn=arn).get("Policy")
        if policy is None:
            return ABSENT
        if foreign := not_ours(tags_of(policy), wanted):
            return foreign
        version = self.clients.read("iam", "get_policy_version", PolicyArn=arn, VersionId=policy["DefaultVersionId"])
        document = _document(version.get("PolicyVersion", {}).get("Document"))
        differs = any(_document(call["PolicyDocument"]) != document for call in self.expected(wanted, "create_policy"))
        changes = ("document",) if differs else ()
        return Found(State.DIFFERS if differs else State.READY, wanted.object.name, {"id": wanted.object.name, "arn": arn}, changes=changes)

    def update(self, wanted: Wanted, found: Found) -> None:
        """Make a new version the default; the oldest goes where there is no room for one more."""
        del found
        arn = self._arn(wanted)
        others = self._other_versions(arn)
        if len(others) + 1 >= _VERSIONS_MAX:
            self.clients.delete("iam", "delete_policy_version", PolicyArn=arn, VersionId=others[0])
        for call in self.expected(wanted, "create_policy"):
            self.clients.update("iam", "create_policy_version", PolicyArn=arn, PolicyDocument=call["PolicyDocument"], SetAsDefault=True)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Detach it everywhere, then delete it with its versions."""
        del found
        arn = self._arn(wanted)
        for role in list(self.clients.listed("iam", "list_entities_for_policy", "PolicyRoles", PolicyArn=arn, EntityFilter="Role")):
            self.clients.delete("iam", "detach_role_policy", RoleName=role["RoleName"], PolicyArn=arn)
        for version in self._other_versions(arn):
            self.clients.delete("iam", "delete_policy_version", PolicyArn=arn, VersionId=version)
        self.clients.delete("iam", "delete_policy", PolicyArn=arn)

    def _arn(self, wanted: Wanted) -> str:
        return f"arn:{self.partition}:iam::{self.account.project}:policy/{wanted.object.name}"

    def _other_versions(self, arn: str) -> list[str]:
        """List the versions that are not the default, oldest first."""
        versions = self.clients.listed("iam", "list_policy_versions", "Versions", PolicyArn=arn)
        others = [each for each in versions if not each.get("IsDefaultVersion")]
        return [str(each["VersionId"]) for each in sorted(others, key=lambda each: int(str(each["VersionId"]).removeprefix("v")))]


class PodIdentityHandler(AwsHandler):
    """Which service account of the cluster acts as which role."""

    def look(self, wanted: Wanted) -> Found:
        """Find it by its service account; compare the role."""
        cluster = wanted.owner.base
        namespace, _, account = wanted.object.name.partition("/")
        listed = self.clients.listed(
            "eks", "list_pod_identity_associations", "associations", clusterName=cluster, namespace=namespace, serviceAccount=account
        )
        identity = next((str(each["associationId"]) for each in listed), "")
        if not identity:
            return ABSENT
        answer = self.clients.read("eks", "describe_pod_identity_association", clusterName=cluster, associationId=identity)
        association: Mapping[str, Any] | None = answer.get("association")
        if association is None:
            return ABSENT
        if foreign := not_ours(tags_of(association, "tags"), wanted):
            return foreign
        differs = any(call["roleArn"] != association["roleArn"] for call in self.expected(wanted, "create_pod_identity_association"))
        return Found(State.DIFFERS if differs else State.READY, identity, {"id": identity}, changes=("role",) if differs else ())

    def update(self, wanted: Wanted, found: Found) -> None:
        """Set the role."""
        for call in self.expected(wanted, "create_pod_identity_association"):
            given = {"clusterName": wanted.owner.base, "associationId": found.id, "roleArn": call["roleArn"]}
            self.clients.update("eks", "update_pod_identity_association", **given)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete it; it goes with the cluster too."""
        self.clients.delete("eks", "delete_pod_identity_association", clusterName=wanted.owner.base, associationId=found.id)


def _document(value: Any) -> Any:
    """Give a policy document as values; it comes as such, or as text that may be escaped as in addresses."""
    if isinstance(value, str):
        return json.loads(value if value.lstrip().startswith("{") else unquote(value))
    return value
