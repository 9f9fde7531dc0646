"""Token reviews for an API server, as the authenticator of EKS answers them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.access import ADMIN, role_of
from fakes.aws.signatures import TokenRefused, verify_token

_MASTERS = "system:masters"


def answer(clouds: Sequence[AwsCloud], review: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a TokenReview (authentication.k8s.io).

    A principal with an access entry logs in; the administrators' policy makes it an
    administrator. An API server does not say which cluster it belongs to, so a token
    for any cluster of the account is accepted.
    """
    user = _user(clouds, str(review.get("spec", {}).get("token", "")))
    status = {"authenticated": True, "user": user} if user else {"authenticated": False}
    return {
        "apiVersion": review.get("apiVersion"),
        "kind": "TokenReview",
        "status": status,
    }


def _user(clouds: Sequence[AwsCloud], token: str) -> dict[str, Any]:
    known = clouds[0].account.known
    for cluster in (each for cloud in clouds for each in cloud.eks.clusters.values()):
        try:
            principal = role_of(verify_token(token, cluster.name, known).principal)
        except TokenRefused:
            continue
        if principal in cluster.entries:
            entry = cluster.entries[principal].body
            admin = any(
                policy.endswith(f"/{ADMIN}")
                for policy in cluster.policies.get(principal, {})
            )
            return {
                "username": entry["username"],
                "groups": [*entry["kubernetesGroups"], *([_MASTERS] if admin else [])],
            }
    return {}
