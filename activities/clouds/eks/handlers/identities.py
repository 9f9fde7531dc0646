"""The handlers of IAM roles, of the policy, and of associations with service accounts.

Names of roles and policies are unique in the whole account.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from activities.clouds.eks.handlers.base import AwsHandler, not_ours, tags_of
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    ObjectWork,
    State,
)
from api_types.errors import PermissionDenied

# The maximum number of versions of a policy in IAM.
_VERSIONS_MAX = 5
_TRUST = "trust policy"
# The prefix of names of objects that EKS creates for node groups.
_EKS_PREFIX = "eks-"


class RoleHandler(AwsHandler):
    """A role with its policies. Policies that other users attached are kept."""

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the role by name, and compare its trust policy and its policies."""
        name = wanted.object.name
        role = self.clients.read("iam", "get_role", RoleName=name).get("Role")
        if role is None:
            return ABSENT
        if foreign := not_ours(tags_of(role), wanted, self.marked("role", name)):
            return foreign
        facts = {"id": name, "arn": str(role["Arn"])}
        trusted = _document(role.get("AssumeRolePolicyDocument"))
        expected = [
            _document(call["AssumeRolePolicyDocument"])
            for call in self.expected(wanted, "create_role")
        ]
        changes = [_TRUST for document in expected if document != trusted]
        attached = self._attached(wanted)
        changes += [
            f"policy {call['PolicyArn']}"
            for call in self.expected(wanted, "attach_role_policy")
            if call["PolicyArn"] not in attached
        ]
        return CloudObservation(
            State.DIFFERS if changes else State.READY,
            name,
            facts,
            changes=tuple(changes),
        )

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Restore the trust policy and the attached policies."""
        if _TRUST in found.changes:
            for call in self.expected(wanted, "create_role"):
                document = call["AssumeRolePolicyDocument"]
                self.clients.update(
                    "iam",
                    "update_assume_role_policy",
                    RoleName=wanted.object.name,
                    PolicyDocument=document,
                )
        super().update(wanted, found)

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Remove everything from the role, then delete it.

        EKS may have created an instance profile for the role. It is deleted too,
        because nothing else identifies its owner.
        """
        del found
        name = wanted.object.name
        for profile in list(
            self.clients.listed(
                "iam",
                "list_instance_profiles_for_role",
                "InstanceProfiles",
                RoleName=name,
            )
        ):
            profile_name = profile["InstanceProfileName"]
            self.clients.delete(
                "iam",
                "remove_role_from_instance_profile",
                InstanceProfileName=profile_name,
                RoleName=name,
            )
            if str(profile_name).startswith(_EKS_PREFIX):
                # The profile costs nothing, so a missing permission to delete it must
                # not block the deletion.
                with contextlib.suppress(PermissionDenied):
                    self.clients.delete(
                        "iam",
                        "delete_instance_profile",
                        InstanceProfileName=profile_name,
                    )
        for arn in self._attached(wanted):
            self.clients.delete(
                "iam", "detach_role_policy", RoleName=name, PolicyArn=arn
            )
        for inline in list(
            self.clients.listed(
                "iam", "list_role_policies", "PolicyNames", RoleName=name
            )
        ):
            self.clients.delete(
                "iam", "delete_role_policy", RoleName=name, PolicyName=inline
            )
        self.clients.delete("iam", "delete_role", RoleName=name)

    def _attached(self, wanted: ObjectWork) -> list[str]:
        listed = self.clients.listed(
            "iam",
            "list_attached_role_policies",
            "AttachedPolicies",
            RoleName=wanted.object.name,
        )
        return [str(each["PolicyArn"]) for each in listed]


class PolicyHandler(AwsHandler):
    """A policy that Modelplane creates. Changed content becomes a new version."""

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the policy by its ARN, and compare its default version."""
        arn = self._arn(wanted)
        policy = self.clients.read("iam", "get_policy", PolicyArn=arn).get("Policy")
        if policy is None:
            return ABSENT
        if foreign := not_ours(tags_of(policy), wanted, self.marked("policy", arn)):
            return foreign
        version = self.clients.read(
            "iam",
            "get_policy_version",
            PolicyArn=arn,
            VersionId=policy["DefaultVersionId"],
        )
        document = _document(version.get("PolicyVersion", {}).get("Document"))
        differs = any(
            _document(call["PolicyDocument"]) != document
            for call in self.expected(wanted, "create_policy")
        )
        changes = ("document",) if differs else ()
        return CloudObservation(
            State.DIFFERS if differs else State.READY,
            wanted.object.name,
            {"id": wanted.object.name, "arn": arn},
            changes=changes,
        )

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Create a new default version.

        If the policy has the maximum number of versions, delete the oldest one first.
        """
        del found
        arn = self._arn(wanted)
        others = self._other_versions(arn)
        if len(others) + 1 >= _VERSIONS_MAX:
            self.clients.delete(
                "iam", "delete_policy_version", PolicyArn=arn, VersionId=others[0]
            )
        for call in self.expected(wanted, "create_policy"):
            self.clients.update(
                "iam",
                "create_policy_version",
                PolicyArn=arn,
                PolicyDocument=call["PolicyDocument"],
                SetAsDefault=True,
            )

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Detach the policy everywhere, then delete it with its versions."""
        del found
        arn = self._arn(wanted)
        for role in list(
            self.clients.listed(
                "iam",
                "list_entities_for_policy",
                "PolicyRoles",
                PolicyArn=arn,
                EntityFilter="Role",
            )
        ):
            self.clients.delete(
                "iam", "detach_role_policy", RoleName=role["RoleName"], PolicyArn=arn
            )
        for version in self._other_versions(arn):
            self.clients.delete(
                "iam", "delete_policy_version", PolicyArn=arn, VersionId=version
            )
        self.clients.delete("iam", "delete_policy", PolicyArn=arn)

    def _arn(self, wanted: ObjectWork) -> str:
        account = f"arn:{self.partition}:iam::{self.account.project}"
        return f"{account}:policy/{wanted.object.name}"

    def _other_versions(self, arn: str) -> list[str]:
        """List the versions that are not the default, oldest first."""
        versions = self.clients.listed(
            "iam", "list_policy_versions", "Versions", PolicyArn=arn
        )
        others = [each for each in versions if not each.get("IsDefaultVersion")]
        return [
            str(each["VersionId"])
            for each in sorted(
                others, key=lambda each: int(str(each["VersionId"]).removeprefix("v"))
            )
        ]


class PodIdentityHandler(AwsHandler):
    """The association of a service account with a role."""

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the association by its service account, and compare the role."""
        cluster = wanted.owner.base
        namespace, _, account = wanted.object.name.partition("/")
        listed = self.clients.listed(
            "eks",
            "list_pod_identity_associations",
            "associations",
            clusterName=cluster,
            namespace=namespace,
            serviceAccount=account,
        )
        identity = next((str(each["associationId"]) for each in listed), "")
        if not identity:
            return ABSENT
        answer = self.clients.read(
            "eks",
            "describe_pod_identity_association",
            clusterName=cluster,
            associationId=identity,
        )
        association: Mapping[str, Any] | None = answer.get("association")
        if association is None:
            return ABSENT
        if foreign := self.not_ours_inside(association, "associationArn", wanted):
            return foreign
        differs = any(
            call["roleArn"] != association["roleArn"]
            for call in self.expected(wanted, "create_pod_identity_association")
        )
        return CloudObservation(
            State.DIFFERS if differs else State.READY,
            identity,
            {"id": identity},
            changes=("role",) if differs else (),
        )

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Set the role."""
        for call in self.expected(wanted, "create_pod_identity_association"):
            given = {
                "clusterName": wanted.owner.base,
                "associationId": found.id,
                "roleArn": call["roleArn"],
            }
            self.clients.update("eks", "update_pod_identity_association", **given)

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete the association. Deleting the cluster deletes it too."""
        self.clients.delete(
            "eks",
            "delete_pod_identity_association",
            clusterName=wanted.owner.base,
            associationId=found.id,
        )


def _document(value: Any) -> Any:
    """Parse a policy document, which may be a value, JSON, or URL-encoded JSON."""
    if isinstance(value, str):
        return json.loads(value if value.lstrip().startswith("{") else unquote(value))
    return value
