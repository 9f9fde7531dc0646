"""The service account of a cluster, and its role in the project."""

import shlex
from typing import Any

from google.iam.v1 import iam_policy_pb2, policy_pb2

from activities.clouds.desired.owner import is_mark
from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.handlers.calls import foreign, parameters
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State
from api_types.errors import NotYet, PermissionDenied, ServerError

_PROJECTS = "resourcemanager.projects"
# Other users write the policy of the project too. Each attempt reads it again.
_RACES_MAX = 8
# A client with an older policy version would lose the conditions of bindings.
_POLICY_VERSION = 3


class AccountHandler:
    def __init__(self, api: GoogleApi) -> None:
        self._api = api
        self._created = False

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the account by its email address.

        Raises NotYet for a new account that IAM hides as if the caller might not read
        it (hashicorp/terraform-provider-google#15042).
        """
        given = parameters(wanted)
        try:
            found = self._api.find(
                "iam", "get_service_account", {"name": _account_name(given)}
            )
        except PermissionDenied as error:
            if self._created or wanted.attempt > 1:
                raise NotYet(error.message) from None
            raise
        if found is None:
            return CloudObservation(State.ABSENT, uncertain=True)
        if found.description != given["service_account"]["description"]:
            expected = given["service_account"]["description"]
            return foreign(
                found.description,
                lost_description(found, expected, is_known=wanted.is_known),
            )
        return CloudObservation(State.READY, found.email, {"id": found.email})

    def create(self, wanted: ObjectWork) -> None:
        """Create the account. Its id is unique to the cluster."""
        self._api.create("iam", "create_service_account", parameters(wanted))
        self._created = True

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Do nothing: `look` never reports a difference."""

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete the account. Google reserves its id for 30 days."""
        del found
        self._api.delete(
            "iam", "delete_service_account", {"name": _account_name(parameters(wanted))}
        )


class BindingHandler:
    """A role of the project for one member.

    Other members, and bindings with conditions, are not changed.
    """

    def __init__(self, api: GoogleApi) -> None:
        self._api = api

    def look(self, wanted: ObjectWork) -> CloudObservation:
        project, role, member = _binding(wanted)
        bindings = plain_bindings(read_policy(self._api, project), role)
        if any(member in binding.members for binding in bindings):
            return CloudObservation(State.READY, role, {"id": role})
        return CloudObservation(State.ABSENT)

    def create(self, wanted: ObjectWork) -> None:
        """Add the member.

        Raises NotYet for an account that is not propagated to the policy yet.
        """
        project, role, member = _binding(wanted)

        def added(policy: Any) -> bool:
            bindings = plain_bindings(policy, role)
            if any(member in binding.members for binding in bindings):
                return False
            binding = bindings[0] if bindings else policy.bindings.add(role=role)
            binding.members.append(member)
            return True

        write_policy(self._api, project, added)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Do nothing: a member has no fields that could differ."""

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        del found
        project, role, member = _binding(wanted)
        write_policy(
            self._api,
            project,
            lambda policy: without_members(policy, role, lambda each: each == member),
        )


def lost_description(found: Any, expected: str, *, is_known: bool) -> str:
    """Return how to restore the description of an account, which has the owner's mark.

    Returns "" for an unknown account with the mark of another owner.
    """
    if is_mark(found.description) and not is_known:
        return ""
    words = ["gcloud", "iam", "service-accounts", "update", found.email]
    command = shlex.join([*words, f"--description={expected}"])
    return (
        f"service account {found.email} does not have the description {expected}, so it "
        f"is neither changed nor deleted; restore with `{command}`"
    )


def read_policy(api: GoogleApi, project: str) -> Any:
    """Return the policy of `projects/<id>` with its conditions and its etag."""
    options = {"requested_policy_version": _POLICY_VERSION}
    return api.read(
        _PROJECTS, "get_iam_policy", {"resource": project, "options": options}
    )


def write_policy(api: GoogleApi, project: str, change: Any) -> None:
    """Change the policy of a project.

    `change` returns True if it changed the policy, which is then written with the etag
    that was read. After a conflict, the policy is read and changed again.
    """
    for _ in range(_RACES_MAX):
        policy: policy_pb2.Policy = read_policy(api, project)
        if not change(policy):
            return
        if any(each.HasField("condition") for each in policy.bindings):
            policy.version = max(policy.version, _POLICY_VERSION)
        request = iam_policy_pb2.SetIamPolicyRequest(resource=project, policy=policy)
        if api.change_policy(request):
            return
    raise ServerError(
        f"others changed the policy of {project} before each of {_RACES_MAX} writes"
    )


def plain_bindings(policy: Any, role: str) -> list[Any]:
    return [
        binding
        for binding in policy.bindings
        if binding.role == role and not binding.HasField("condition")
    ]


def without_members(policy: Any, role: str, leaves: Any) -> bool:
    """Remove members from a role, and remove bindings without members.

    Returns False if nothing changed.
    """
    changed = False
    for binding in plain_bindings(policy, role):
        kept = [member for member in binding.members if not leaves(member)]
        if len(kept) < len(binding.members):
            changed = True
            binding.members[:] = kept
            if not kept:
                policy.bindings.remove(binding)
    return changed


def _account_name(given: dict[str, Any]) -> str:
    project = str(given["name"]).removeprefix("projects/")
    email = f"{given['account_id']}@{project}.iam.gserviceaccount.com"
    return f"projects/{project}/serviceAccounts/{email}"


def _binding(wanted: ObjectWork) -> tuple[str, str, str]:
    """Return project, role and member."""
    given = parameters(wanted)
    (binding,) = given["policy"]["bindings"]
    (member,) = binding["members"]
    return str(given["resource"]), str(binding["role"]), str(member)
