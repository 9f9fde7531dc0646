"""What an API server of the fake account is told of a token, as the authenticator that runs beside each control plane of EKS says it."""

from collections.abc import Mapping
from typing import Any

from testbed.clouds.aws.cloud import Cloud
from testbed.clouds.aws.eks.access import ADMIN, role_of
from testbed.clouds.aws.signatures import TokenRefused, verify_token

_MASTERS = "system:masters"


def answer(cloud: Cloud, review: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a TokenReview (authentication.k8s.io): whoever has an access entry logs in, with the policy of administrators as one.

    An API server does not say whose it is, so a token for any cluster of the account is accepted.
    """
    user = _user(cloud, str(review.get("spec", {}).get("token", "")))
    status = {"authenticated": True, "user": user} if user else {"authenticated": False}
    return {"apiVersion": review.get("apiVersion"), "kind": "TokenReview", "status": status}


def _user(cloud: Cloud, token: str) -> dict[str, Any]:
    for cluster in cloud.eks.clusters.values():
        try:
            principal = role_of(verify_token(token, cluster.name, cloud.account.known).principal)
        except TokenRefused:
            continue
        if principal in cluster.entries:
            entry = cluster.entries[principal].body
            admin = any(policy.endswith(f"/{ADMIN}") for policy in cluster.policies.get(principal, {}))
            return {"username": entry["username"], "groups": [*entry["kubernetesGroups"], *([_MASTERS] if admin else [])]}
    return {}
