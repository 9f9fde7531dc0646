"""IAM and STS: refusals that moto lacks, and the identity of callers."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fakes.aws import policies
from fakes.aws.cloud import AwsCloud
from fakes.aws.faults import FaultKind
from fakes.aws.wire import AwsRequest, Refusal


def role_named(cloud: AwsCloud, arn: str) -> Any | None:
    """Return the role with this ARN, or None."""
    return next((each for each in cloud.iam.roles.values() if each.arn == arn), None)


def assumable(cloud: AwsCloud, request: AwsRequest, arn: str, service: str) -> None:
    """Refuse a role, as EKS does.

    EKS refuses a role that does not exist, does not trust a service, or was just
    created.
    """
    if (
        service not in _trusted(cloud, arn)
        or cloud.take(FaultKind.ROLE_NOT_ASSUMABLE, request) is not None
    ):
        raise Refusal(
            "InvalidParameterException",
            f"Role with arn: {arn}, could not be assumed because it does not exist or the trusted "
            "entity is not correct",
        )


def trusted_by_node(cloud: AwsCloud, request: AwsRequest, arn: str) -> None:
    """Refuse a role for nodes, as EKS does."""
    if role_named(cloud, arn) is None:
        assumable(cloud, request, arn, "ec2.amazonaws.com")
    suffix = ".cn" if cloud.account.partition == "aws-cn" else ""
    service = f"ec2.amazonaws.com{suffix}"
    if service not in _trusted(cloud, arn):
        raise Refusal(
            "InvalidParameterException",
            f"Following required service principals [{service}] were not found in the trust "
            f"relationships of nodeRole {arn}",
        )
    assumable(cloud, request, arn, service)


def _trusted(cloud: AwsCloud, arn: str) -> set[str]:
    """Return the services that a role trusts. An unknown role trusts none."""
    role = role_named(cloud, arn)
    if role is None:
        return set()
    found: set[str] = set()
    document = json.loads(role.assume_role_policy_document)
    for statement in document.get("Statement", []):
        services = statement.get("Principal", {}).get("Service", [])
        found.update([services] if isinstance(services, str) else services)
    return found


def _get_role(cloud: AwsCloud, request: AwsRequest) -> None:
    name = request.text("RoleName")
    if not any(each.name == name for each in cloud.iam.roles.values()):
        raise Refusal("NoSuchEntity", f"The role with name {name} cannot be found.")


def _delete_role(cloud: AwsCloud, request: AwsRequest) -> None:
    role = next(
        (
            each
            for each in cloud.iam.roles.values()
            if each.name == request.text("RoleName")
        ),
        None,
    )
    if role is None:
        return
    if role.managed_policies or role.policies:
        raise Refusal(
            "DeleteConflict", "Cannot delete entity, must detach all policies first."
        )
    if any(role in each.roles for each in cloud.iam.instance_profiles.values()):
        raise Refusal(
            "DeleteConflict",
            "Cannot delete entity, must remove roles from instance profile first.",
        )


def _delete_policy(cloud: AwsCloud, request: AwsRequest) -> None:
    policy = cloud.iam.managed_policies.get(request.text("PolicyArn"))
    if policy is None:
        return
    holders = [
        *cloud.iam.roles.values(),
        *cloud.iam.users.values(),
        *cloud.iam.groups.values(),
    ]
    if any(policy.arn in each.managed_policies for each in holders):
        raise Refusal("DeleteConflict", "Cannot delete a policy attached to entities.")
    if len(policy.versions) > 1:
        raise Refusal(
            "DeleteConflict",
            (
                "This policy has more than one version. Before you delete a policy, "
                "you must delete its other versions."
            ),
        )


def _identity(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    return {
        "Account": cloud.account.number,
        "Arn": request.principal,
        "UserId": f"{request.access_key}:fake",
    }


def _assume_role(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    name, arn = _role_of(request)
    role = cloud.account.roles.get(name)
    if (
        role is None
        or arn != cloud.account.role_arn(name)
        or not role.principal
        or request.principal != role.principal
        or request.text("ExternalId") != role.external_id
    ):
        raise Refusal(
            "AccessDenied",
            f"User: {request.principal} is not authorized to perform: sts:AssumeRole on "
            f"resource: {arn}",
        )
    return _session(cloud, request, name)


def _assume_with_token(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    name, arn = _role_of(request)
    role = cloud.account.roles.get(name)
    if role is None or arn != cloud.account.role_arn(name) or not role.token:
        raise Refusal(
            "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity"
        )
    if request.text("WebIdentityToken") != role.token:
        raise Refusal(
            "InvalidIdentityToken",
            "No OpenIDConnect provider found in your account for the token",
        )
    return _session(cloud, request, name)


def _role_of(request: AwsRequest) -> tuple[str, str]:
    arn = request.text("RoleArn")
    return arn.rpartition("/")[2], arn


def _session(cloud: AwsCloud, request: AwsRequest, name: str) -> Mapping[str, Any]:
    made = cloud.account.role_session(name, request.text("RoleSessionName"))
    end = datetime.fromtimestamp(cloud.account.now(), UTC) + timedelta(hours=1)
    return {
        "Credentials": {
            "AccessKeyId": made.access_key,
            "SecretAccessKey": made.secret_key,
            "SessionToken": made.session_token,
            "Expiration": end,
        },
        "AssumedRoleUser": {
            "AssumedRoleId": f"AROA:{request.text('RoleSessionName')}",
            "Arn": made.principal,
        },
    }


def _simulated(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    """Answer for the policies of the principal, and for the decisions in `denied`."""
    documents = cloud.account.policies_of(request.text("PolicySourceArn"))
    keys = {
        each["ContextKeyName"]: each["ContextKeyValues"][0]
        for each in request.parameters.get("ContextEntries", ())
    }

    resource = next(iter(request.parameters.get("ResourceArns") or ()), "*")

    def decided(action: str) -> str:
        if documents is not None:
            return policies.simulated(documents, action, resource, keys)
        return cloud.denied.get(action, "allowed")

    return {
        "EvaluationResults": [
            {
                "EvalActionName": each,
                "EvalResourceName": "*",
                **_decision(decided(each)),
            }
            for each in request.parameters["ActionNames"]
        ],
        "IsTruncated": False,
    }


def _decision(decision: str) -> Mapping[str, Any]:
    verdict, _, missing = decision.partition(" without ")
    return {
        "EvalDecision": verdict,
        "MissingContextValues": [missing] if missing else [],
    }


BEFORE: Mapping[str, Callable[[AwsCloud, AwsRequest], None]] = {
    "GetRole": _get_role,
    "DeleteRole": _delete_role,
    "DeletePolicy": _delete_policy,
}
OWN: Mapping[str, Callable[[AwsCloud, AwsRequest], Mapping[str, Any]]] = {
    "GetCallerIdentity": _identity,
    "AssumeRole": _assume_role,
    "AssumeRoleWithWebIdentity": _assume_with_token,
    "SimulatePrincipalPolicy": _simulated,
}
