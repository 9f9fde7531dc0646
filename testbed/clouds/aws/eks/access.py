"""Who may log in to a cluster, and which service account in it acts as which role."""

import re
from collections.abc import Mapping
from typing import Any

from testbed.clouds.aws.cloud import Cloud
from testbed.clouds.aws.eks.parts import IN_USE, INVALID_PARAMETER, NOT_FOUND, Handler, active_cluster, cluster_of, item_of, page, shown
from testbed.clouds.aws.eks_store import BORN, Cluster, Item
from testbed.clouds.aws.faults import Kind
from testbed.clouds.aws.services.identities import assumable, role_named
from testbed.clouds.aws.wire import Refusal, Request

ADMIN = "AmazonEKSClusterAdminPolicy"
_SESSION = re.compile(r"^arn:([^:]+):sts::(\d+):assumed-role/([^/]+)/")


def role_of(principal: str) -> str:
    """Give the ARN of the role whose session a principal is; any other principal as it is."""
    matched = _SESSION.match(principal)
    return f"arn:{matched[1]}:iam::{matched[2]}:role/{matched[3]}" if matched else principal


def admit_creator(cloud: Cloud, cluster: Cluster, principal: str) -> None:
    """Let in whoever creates a cluster, as its administrator."""
    who = role_of(principal)
    add_entry(cloud, cluster, who, {})
    policy = f"arn:{cloud.account.partition}:eks::aws:cluster-access-policy/{ADMIN}"
    cluster.policies[who] = {policy: _associated(policy, {"type": "cluster"})}


def add_entry(cloud: Cloud, cluster: Cluster, who: str, tags: Mapping[str, str], kind: str = "STANDARD") -> Item:
    """Add an access entry."""
    kind_of_principal = "role" if ":role/" in who else "user"
    arn = f"access-entry/{cluster.name}/{kind_of_principal}/{cloud.account.number}/{who.rpartition('/')[2]}/{cloud.eks.digits(8)}"
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
    cluster.entries[who] = Item(body)
    return cluster.entries[who]


def _associated(policy: str, scope: Mapping[str, Any]) -> dict[str, Any]:
    return {"policyArn": policy, "accessScope": {"namespaces": [], **scope}, "associatedAt": BORN, "modifiedAt": BORN}


def _create_entry(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster, who = active_cluster(cloud, request), request.text("principalArn")
    if cluster.body["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
        raise Refusal("InvalidRequestException", "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP]")
    if who in cluster.entries:
        raise Refusal(IN_USE, "The specified access entry resource is already in use on this cluster.")
    if who != role_of(who):
        raise Refusal(INVALID_PARAMETER, "The specified principalArn is invalid: invalid principal.")
    entry = add_entry(cloud, cluster, who, request.parameters.get("tags", {}))
    entry.body["kubernetesGroups"] = request.parameters.get("kubernetesGroups", [])
    return {"accessEntry": dict(entry.body)}


def _describe_entry(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    entries = cluster_of(cloud, request).entries
    item_of(entries, "access entry", request.text("principalArn"))
    return {"accessEntry": shown(cloud, entries, request.text("principalArn"))}


def _list_entries(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    return page(request, sorted(cluster_of(cloud, request).entries), "accessEntries")


def _delete_entry(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster, who = cluster_of(cloud, request), request.text("principalArn")
    item_of(cluster.entries, "access entry", who)
    cluster.entries.pop(who)
    cluster.policies.pop(who, None)
    return {}


def _associate(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster, who, policy = cluster_of(cloud, request), request.text("principalArn"), request.text("policyArn")
    item_of(cluster.entries, "access entry", who)
    if ":eks::aws:cluster-access-policy/" not in policy:
        raise Refusal(INVALID_PARAMETER, f"The policyArn parameter format is not valid: {policy}")
    associated = _associated(policy, request.parameters["accessScope"])
    cluster.policies.setdefault(who, {})[policy] = associated
    return {"clusterName": cluster.name, "principalArn": who, "associatedAccessPolicy": associated}


def _disassociate(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster, who, policy = cluster_of(cloud, request), request.text("principalArn"), request.text("policyArn")
    if cluster.policies.get(who, {}).pop(policy, None) is None:
        raise Refusal(NOT_FOUND, f"The policy {policy} is not associated with {who}")
    return {}


def _list_associated(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster, who = cluster_of(cloud, request), request.text("principalArn")
    item_of(cluster.entries, "access entry", who)
    return {"clusterName": cluster.name, "principalArn": who, "associatedAccessPolicies": list(cluster.policies.get(who, {}).values())}


def _create_identity(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster = active_cluster(cloud, request)
    namespace, account, role = (request.text(key) for key in ("namespace", "serviceAccount", "roleArn"))
    if any((each.body["namespace"], each.body["serviceAccount"]) == (namespace, account) for each in cluster.identities.values()):
        raise Refusal(IN_USE, f"Association already exists for namespace {namespace} and service account {account}")
    assumable(cloud, request, role, "pods.eks.amazonaws.com")
    name = f"a-{cloud.eks.digits()}"
    body = {
        "clusterName": cluster.name,
        "namespace": namespace,
        "serviceAccount": account,
        "roleArn": role,
        "associationArn": cloud.account.arn("eks", f"podidentityassociation/{cluster.name}/{name}"),
        "associationId": name,
        "tags": dict(request.parameters.get("tags", {})),
        "createdAt": BORN,
        "modifiedAt": BORN,
    }
    item = cluster.identities[name] = Item(body)
    vanish = cloud.take(Kind.VANISH, request)
    item.vanishes_in = vanish.times if vanish else None
    return {"association": dict(body)}


def _describe_identity(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    identities = cluster_of(cloud, request).identities
    item_of(identities, "association", request.text("associationId"))
    return {"association": shown(cloud, identities, request.text("associationId"))}


def _list_identities(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    given = request.parameters
    keys = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")
    found = [
        {key: each.body[key] for key in keys}
        for each in cluster_of(cloud, request).identities.values()
        if all(given.get(key) in (None, each.body[key]) for key in ("namespace", "serviceAccount"))
    ]
    return {"associations": found}


def _update_identity(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    item = item_of(cluster_of(cloud, request).identities, "association", request.text("associationId"))
    role = request.text("roleArn")
    if role and role_named(cloud, role) is None:
        raise Refusal(INVALID_PARAMETER, f"Role {role} does not exist")
    item.body["roleArn"] = role or item.body["roleArn"]
    return {"association": dict(item.body)}


def _delete_identity(cloud: Cloud, request: Request) -> Mapping[str, Any]:
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
