"""IAM and STS: what moto allows and AWS does not, and who a caller is."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from testbed.clouds.aws.cloud import Cloud
from testbed.clouds.aws.faults import Kind
from testbed.clouds.aws.wire import Refusal, Request


def role_named(cloud: Cloud, arn: str) -> Any | None:
    """Give the role with this ARN, or None."""
    return next((each for each in cloud.iam.roles.values() if each.arn == arn), None)


def assumable(cloud: Cloud, request: Request, arn: str, service: str) -> None:
    """Refuse, as EKS does, a role that is not there, that does not trust a service, or that IAM has not made known yet."""
    role = role_named(cloud, arn)
    if role is None:
        raise Refusal("InvalidParameterException", f"Role with arn: {arn}, could not be assumed because it does not exist")
    document = json.loads(role.assume_role_policy_document)
    trusted = [each.get("Principal", {}).get("Service") for each in document.get("Statement", [])]
    if not any(service in (each if isinstance(each, list) else [each]) for each in trusted):
        raise Refusal("InvalidParameterException", f"Role with arn: {arn}, could not be assumed: it does not trust {service}")
    if cloud.take(Kind.ROLE_NOT_ASSUMABLE, request) is not None:
        raise Refusal(
            "InvalidParameterException", f"Role with arn: {arn}, could not be assumed because it does not exist or is not known yet"
        )


def _delete_role(cloud: Cloud, request: Request) -> None:
    role = next((each for each in cloud.iam.roles.values() if each.name == request.text("RoleName")), None)
    if role is None:
        return
    if role.managed_policies or role.policies:
        raise Refusal("DeleteConflict", "Cannot delete entity, must detach all policies first.")
    if any(role in each.roles for each in cloud.iam.instance_profiles.values()):
        raise Refusal("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")


def _delete_policy(cloud: Cloud, request: Request) -> None:
    policy = cloud.iam.managed_policies.get(request.text("PolicyArn"))
    if policy is None:
        return
    holders = [*cloud.iam.roles.values(), *cloud.iam.users.values(), *cloud.iam.groups.values()]
    if any(policy.arn in each.managed_policies for each in holders):
        raise Refusal("DeleteConflict", "Cannot delete a policy attached to entities.")
    if len(policy.versions) > 1:
        raise Refusal(
            "DeleteConflict", "This policy has more than one version. Before you delete a policy, you must delete its other versions."
        )


def _identity(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    return {"Account": cloud.account.number, "Arn": request.principal, "UserId": f"{request.access_key}:fake"}


def _simulated(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    """Answer what the account's policies say: everything is allowed but what `denied` has."""
    return {
        "EvaluationResults": [
            {"EvalActionName": each, "EvalResourceName": "*", **_decision(cloud.denied.get(each, "allowed"))}
            for each in request.parameters["ActionNames"]
        ],
        "IsTruncated": False,
    }


def _decision(decision: str) -> Mapping[str, Any]:
    verdict, _, missing = decision.partition(" without ")
    return {"EvalDecision": verdict, "MissingContextValues": [missing] if missing else []}


BEFORE: Mapping[str, Callable[[Cloud, Request], None]] = {"DeleteRole": _delete_role, "DeletePolicy": _delete_policy}
OWN: Mapping[str, Callable[[Cloud, Request], Mapping[str, Any]]] = {"GetCallerIdentity": _identity, "SimulatePrincipalPolicy": _simulated}
