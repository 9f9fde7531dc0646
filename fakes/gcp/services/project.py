"""The project: its policy with an etag, and the permissions of the caller."""

from google.cloud import resourcemanager_v3
from google.iam.v1 import iam_policy_pb2, policy_pb2

from fakes.gcp.calls.errors import CloudError, invalid
from fakes.gcp.services.world import Binding, Policy, World


def _check(world: World, resource: str) -> None:
    if resource != world.root:
        # A missing project and an invisible one get the same answer.
        raise CloudError(
            "PERMISSION_DENIED",
            f"The caller does not have permission on {resource}.",
            reason="IAM_PERMISSION_DENIED",
        )


def _message(policy: Policy) -> policy_pb2.Policy:
    bindings = [
        policy_pb2.Binding(role=each.role, members=each.members)
        for each in policy.bindings
        if each.members
    ]
    return policy_pb2.Policy(
        version=1, etag=f"etag-{policy.version:08d}".encode(), bindings=bindings
    )


def get_project(
    world: World, request: resourcemanager_v3.GetProjectRequest
) -> resourcemanager_v3.Project:
    """Return the project."""
    _check(world, request.name)
    return resourcemanager_v3.Project(
        name="projects/100000000001", project_id=world.project, state="ACTIVE"
    )


def get_iam_policy(
    world: World, request: iam_policy_pb2.GetIamPolicyRequest
) -> policy_pb2.Policy:
    """Return the policy with its etag."""
    _check(world, request.resource)
    return _message(world.policy)


def set_iam_policy(
    world: World, request: iam_policy_pb2.SetIamPolicyRequest
) -> policy_pb2.Policy:
    """Replace the policy.

    Without an etag, any version is replaced. Refuse an old etag, and an account that
    does not exist.
    """
    _check(world, request.resource)
    if request.policy.etag and request.policy.etag != _message(world.policy).etag:
        raise CloudError(
            "ABORTED",
            (
                "There were concurrent policy changes. Please retry the whole "
                "read-modify-write with exponential backoff."
            ),
        )
    for binding in request.policy.bindings:
        for member in binding.members:
            kind, _, address = member.partition(":")
            if kind not in {"serviceAccount", "user", "group", "domain", "deleted"}:
                raise invalid(f'Invalid member "{member}".')
            local = address.endswith(f"@{world.project}.iam.gserviceaccount.com")
            if (
                kind == "serviceAccount"
                and local
                and world.visible(f"{world.root}/serviceAccounts/{address}") is None
            ):
                raise invalid(f"Service account {address} does not exist.")
    bindings = [
        Binding(each.role, list(dict.fromkeys(each.members)))
        for each in request.policy.bindings
        if each.members
    ]
    world.policy = Policy(bindings, world.policy.version + 1)
    return _message(world.policy)


def test_iam_permissions(
    world: World, request: iam_policy_pb2.TestIamPermissionsRequest
) -> iam_policy_pb2.TestIamPermissionsResponse:
    """Return the permissions of a list that the caller has, without denied ones."""
    _check(world, request.resource)
    held = world.limits.get(world.caller)
    return iam_policy_pb2.TestIamPermissionsResponse(
        permissions=[
            each
            for each in request.permissions
            if each not in world.denied and (held is None or each in held)
        ]
    )
