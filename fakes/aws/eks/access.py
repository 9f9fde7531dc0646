"""Access entries of a cluster, and pod identities of its service accounts."""

import re
from collections.abc import Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.parts import (
    IN_USE,
    INVALID_PARAMETER,
    NOT_FOUND,
    Handler,
    active_cluster,
    cluster_of,
    item_of,
    page,
    shown,
)
from fakes.aws.eks_store import BORN, EksClusterObject, EksObject
from fakes.aws.faults import FaultKind
from fakes.aws.services.identities import assumable, role_named
from fakes.aws.wire import AwsRequest, Refusal

ADMIN = "AmazonEKSClusterAdminPolicy"
_SESSION = re.compile(r"^arn:([^:]+):sts::(\d+):assumed-role/([^/]+)/")


def role_of(principal: str) -> str:
    """Return the ARN of a session's role, or another principal unchanged."""
    matched = _SESSION.match(principal)
    return (
        f"arn:{matched[1]}:iam::{matched[2]}:role/{matched[3]}"
        if matched
        else principal
    )


def admit_creator(cloud: AwsCloud, cluster: EksClusterObject, principal: str) -> None:
    """Give the creator of a cluster an access entry as its administrator."""
    who = role_of(principal)
    add_entry(cloud, cluster, who, {})
    policy = f"arn:{cloud.account.partition}:eks::aws:cluster-access-policy/{ADMIN}"
    cluster.policies[who] = {policy: _associated(policy, {"type": "cluster"})}


def add_entry(
    cloud: AwsCloud,
    cluster: EksClusterObject,
    who: str,
    tags: Mapping[str, str],
    kind: str = "STANDARD",
) -> EksObject:
    """Add an access entry."""
    kind_of_principal = "role" if ":role/" in who else "user"
    name = who.rpartition("/")[2]
    arn = (
        f"access-entry/{cluster.name}/{kind_of_principal}/{cloud.account.number}/"
        f"{name}/{cloud.eks.digits(8)}"
    )
    body = {
        "clusterName": cluster.name,
        "principalArn": who,
        "kubernetesGroups": [],
        "accessEntryArn": cloud.account.arn("eks", arn),
        "createdAt": BORN,
        "modifiedAt": BORN,
        "tags": dict(tags),
        "username": who,
        "type": kind,
    }
    cluster.entries[who] = EksObject(body)
    return cluster.entries[who]


def _associated(policy: str, scope: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "policyArn": policy,
        "accessScope": {"namespaces": [], **scope},
        "associatedAt": BORN,
        "modifiedAt": BORN,
    }


def _create_entry(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, who = active_cluster(cloud, request), request.text("principalArn")
    if cluster.body["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
        raise Refusal(
            "InvalidRequestException",
            "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP]",
        )
    if who in cluster.entries:
        raise Refusal(
            IN_USE,
            "The specified access entry resource is already in use on this cluster.",
        )
    if who != role_of(who):
        raise Refusal(
            INVALID_PARAMETER, "The principalArn parameter format is not valid"
        )
    if not _exists(cloud, who):
        raise Refusal(
            INVALID_PARAMETER,
            "The specified principalArn is invalid: invalid principal.",
        )
    entry = add_entry(cloud, cluster, who, request.parameters.get("tags", {}))
    entry.body["kubernetesGroups"] = request.parameters.get("kubernetesGroups", [])
    return {"accessEntry": dict(entry.body)}


def _exists(cloud: AwsCloud, who: str) -> bool:
    """Return whether IAM has this role or user.

    The principals of the account's own credentials are not in moto's IAM.
    """
    own = {role_of(each.principal) for each in cloud.account.credentials.values()}
    return (
        who in own
        or role_named(cloud, who) is not None
        or any(each.arn == who for each in cloud.iam.users.values())
    )


def _describe_entry(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    entries = cluster_of(cloud, request).entries
    item_of(entries, "access entry", request.text("principalArn"))
    return {"accessEntry": shown(cloud, entries, request.text("principalArn"))}


def _list_entries(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    return page(request, sorted(cluster_of(cloud, request).entries), "accessEntries")


def _delete_entry(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, who = cluster_of(cloud, request), request.text("principalArn")
    item_of(cluster.entries, "access entry", who)
    cluster.entries.pop(who)
    cluster.policies.pop(who, None)
    return {}


def _associate(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, who, policy = (
        cluster_of(cloud, request),
        request.text("principalArn"),
        request.text("policyArn"),
    )
    if who not in cluster.entries:
        raise Refusal(
            NOT_FOUND,
            "The specified principalArn could not be found. You can view your available access "
            "entries with 'list-access-entries'.",
        )
    if cluster.entries[who].body["type"] != "STANDARD":
        raise Refusal(
            INVALID_PARAMETER,
            "This operation can only be performed on Access Entries with a type of "
            '"STANDARD".',
        )
    if ":eks::aws:cluster-access-policy/" not in policy:
        raise Refusal(
            INVALID_PARAMETER, f"The policyArn parameter format is not valid: {policy}"
        )
    associated = _associated(policy, request.parameters["accessScope"])
    cluster.policies.setdefault(who, {})[policy] = associated
    return {
        "clusterName": cluster.name,
        "principalArn": who,
        "associatedAccessPolicy": associated,
    }


def _disassociate(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, who, policy = (
        cluster_of(cloud, request),
        request.text("principalArn"),
        request.text("policyArn"),
    )
    if cluster.policies.get(who, {}).pop(policy, None) is None:
        raise Refusal(NOT_FOUND, f"The policy {policy} is not associated with {who}")
    return {}


def _list_associated(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, who = cluster_of(cloud, request), request.text("principalArn")
    item_of(cluster.entries, "access entry", who)
    return {
        "clusterName": cluster.name,
        "principalArn": who,
        "associatedAccessPolicies": list(cluster.policies.get(who, {}).values()),
    }


def _create_identity(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster = active_cluster(cloud, request)
    namespace, account, role = (
        request.text(key) for key in ("namespace", "serviceAccount", "roleArn")
    )
    for name, each in cluster.identities.items():
        if (each.body["namespace"], each.body["serviceAccount"]) == (
            namespace,
            account,
        ):
            raise Refusal(IN_USE, f"Association already exists: {name}")
    assumable(cloud, request, role, "pods.eks.amazonaws.com")
    name = f"a-{cloud.eks.digits()}"
    body = {
        "clusterName": cluster.name,
        "namespace": namespace,
        "serviceAccount": account,
        "roleArn": role,
        "associationArn": cloud.account.arn(
            "eks", f"podidentityassociation/{cluster.name}/{name}"
        ),
        "associationId": name,
        "tags": dict(request.parameters.get("tags", {})),
        "createdAt": BORN,
        "modifiedAt": BORN,
    }
    item = cluster.identities[name] = EksObject(body)
    vanish = cloud.take(FaultKind.VANISH, request)
    item.vanishes_in = vanish.times if vanish else None
    return {"association": dict(body)}


def _describe_identity(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    identities = cluster_of(cloud, request).identities
    item_of(identities, "association", request.text("associationId"))
    return {"association": shown(cloud, identities, request.text("associationId"))}


def _list_identities(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    given = request.parameters
    keys = (
        "clusterName",
        "namespace",
        "serviceAccount",
        "associationArn",
        "associationId",
    )
    found = [
        {key: each.body[key] for key in keys}
        for each in cluster_of(cloud, request).identities.values()
        if all(
            given.get(key) in (None, each.body[key])
            for key in ("namespace", "serviceAccount")
        )
    ]
    return {"associations": found}


def _update_identity(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    item = item_of(
        cluster_of(cloud, request).identities,
        "association",
        request.text("associationId"),
    )
    role = request.text("roleArn")
    if role and role_named(cloud, role) is None:
        raise Refusal(INVALID_PARAMETER, f"Role {role} does not exist")
    item.body["roleArn"] = role or item.body["roleArn"]
    return {"association": dict(item.body)}


def _delete_identity(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster = cluster_of(cloud, request)
    item = item_of(cluster.identities, "association", request.text("associationId"))
    cluster.identities.pop(request.text("associationId"))
    return {"association": dict(item.body)}


HANDLERS: Mapping[str, Handler] = {
    "CreateAccessEntry": _create_entry,
    "DescribeAccessEntry": _describe_entry,
    "ListAccessEntries": _list_entries,
    "DeleteAccessEntry": _delete_entry,
    "AssociateAccessPolicy": _associate,
    "DisassociateAccessPolicy": _disassociate,
    "ListAssociatedAccessPolicies": _list_associated,
    "CreatePodIdentityAssociation": _create_identity,
    "DescribePodIdentityAssociation": _describe_identity,
    "ListPodIdentityAssociations": _list_identities,
    "UpdatePodIdentityAssociation": _update_identity,
    "DeletePodIdentityAssociation": _delete_identity,
}
