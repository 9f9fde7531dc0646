"""The service account of a cluster, and its role in the project."""

from typing import Any

from google.iam.v1 import iam_policy_pb2, policy_pb2

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.handlers.calls import foreign, parameters
from activities.clouds.lifecycle.handler import Found, State, Wanted
from api_types.errors import InvalidInput, NotYet, ServerError

_PROJECTS = "resourcemanager.projects"
# Others write the policy of the project too; each attempt reads it again.
_RACES_MAX = 8
# Conditions of bindings are lost by who reads or writes an older version.
_POLICY_VERSION = 3


class AccountHandler:
    """A service account."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api

    def look(self, wanted: Wanted) -> Found:
        """Find it by its address."""
        given = parameters(wanted)
        found = self._api.find("iam", "get_service_account", {"name": _account_name(given)})
        if found is None:
            return Found(State.ABSENT, uncertain=True)
        if found.description != given["service_account"]["description"]:
            return foreign(found.description)
        return Found(State.READY, found.email, {"id": found.email})

    def create(self, wanted: Wanted) -> None:
        """Create it; its id is its own."""
        self._api.create("iam", "create_service_account", parameters(wanted))

    def update(self, wanted: Wanted, found: Found) -> None:
        """Change nothing: `look` never finds a difference."""

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete it; Google keeps it for 30 days, and its id with it."""
        del found
        self._api.delete("iam", "delete_service_account", {"name": _account_name(parameters(wanted))})


class BindingHandler:
    """A role of the project for one member. Other members, and bindings with conditions, are kept as they are."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api

    def look(self, wanted: Wanted) -> Found:
        """Read the policy of the project."""
        project, role, member = _binding(wanted)
        there = any(member in binding.members for binding in plain_bindings(read_policy(self._api, project), role))
        return Found(State.READY, role, {"id": role}) if there else Found(State.ABSENT)

    def create(self, wanted: Wanted) -> None:
        """Add the member. Raises NotYet for an account that the policy does not know yet."""
        project, role, member = _binding(wanted)

        def added(policy: Any) -> bool:
            bindings = plain_bindings(policy, role)
            if any(member in binding.members for binding in bindings):
                return False
            (bindings[0] if bindings else policy.bindings.add(role=role)).members.append(member)
            return True

        try:
            write_policy(self._api, project, added)
        except InvalidInput as error:
            if "does not exist" in error.message:
                raise NotYet(error.message) from None
            raise

    def update(self, wanted: Wanted, found: Found) -> None:
        """Change nothing: a member is there or not."""

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Remove the member."""
        del found
        project, role, member = _binding(wanted)
        write_policy(self._api, project, lambda policy: without_members(policy, role, lambda each: each == member))


def read_policy(api: GoogleApi, project: str) -> Any:
    """Give the policy of the project, `projects/<id>`, with conditions and its etag."""
    options = {"requested_policy_version": _POLICY_VERSION}
    return api.read(_PROJECTS, "get_iam_policy", {"resource": project, "options": options})


def write_policy(api: GoogleApi, project: str, change: Any) -> None:
    """Change the policy: read, let `change` say whether it changed something, write with the etag that was read, again after a race."""
    for _ in range(_RACES_MAX):
        policy: policy_pb2.Policy = read_policy(api, project)
        if not change(policy):
            return
        policy.version = (
            max(policy.version, _POLICY_VERSION) if any(each.HasField("condition") for each in policy.bindings) else policy.version
        )
        if api.change_policy(iam_policy_pb2.SetIamPolicyRequest(resource=project, policy=policy)):
            return
    raise ServerError(f"the policy of {project} was changed by others each time before it was written")


def plain_bindings(policy: Any, role: str) -> list[Any]:
    """Give the bindings of a role that have no condition."""
    return [binding for binding in policy.bindings if binding.role == role and not binding.HasField("condition")]


def without_members(policy: Any, role: str, leaves: Any) -> bool:
    """Take members out of a role, and a binding that has no member left out of the policy. False if there was none."""
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
    return f"projects/{project}/serviceAccounts/{given['account_id']}@{project}.iam.gserviceaccount.com"


def _binding(wanted: Wanted) -> tuple[str, str, str]:
    """Give project, role and member."""
    given = parameters(wanted)
    (binding,) = given["policy"]["bindings"]
    (member,) = binding["members"]
    return str(given["resource"]), str(binding["role"]), str(member)
