"""The owner of an object at a cloud, in its name and in its mark.

An object is changed or deleted only if its mark names the cluster. Every name contains
the uid, so a recreated cluster never conflicts with leftovers of an earlier cluster of
the same name. Clouds keep some deleted objects for weeks.
"""

import re
from dataclasses import dataclass

from api_types import labels, names
from api_types.messages.clouds import CloudAccount
from api_types.pins.charts import ENVOY_GATEWAY
from api_types.resources.inference_cluster import InferenceCluster

UNKNOWN_DIGITS = "xxxxxxxx"
"""A placeholder for the digits of a name while installation or uid are unknown."""
UNKNOWN_INSTALLATION = "INSTALLATION"
"""A placeholder for the id of the installation while it is unknown."""

SYSTEM_POOL = "system"

_VISIBLE_MAX = 22
_POOL_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
# A readable part of 30 characters, a dash and eight digits.
_HASHED_POOL_MAX = 39
_GCP_LABEL_MAX = 63
_GCP_MARK = "modelplane owner="


# The name, without its trailing digits, that Envoy Gateway gives to the Service of
# Modelplane's Gateway.
_GATEWAY_SERVICE = (
    f"{ENVOY_GATEWAY.namespace}/envoy-{labels.SYSTEM_NAMESPACE}-{labels.GATEWAY_NAME}-"
)


@dataclass(frozen=True)
class ClusterOwner:
    """A cluster as the owner of cloud objects.

    `digits` are a digest of installation, name and uid.
    """

    installation: str
    cluster: str
    digits: str

    @property
    def base(self) -> str:
        """The prefix of its object names: at most 31 characters, a letter first."""
        return f"{names.slug(self.cluster)[:_VISIBLE_MAX].rstrip('-')}-{self.digits}"

    @property
    def account(self) -> str:
        """The id of its GCP service account, which has 6 to 30 characters."""
        return f"mp-{self.digits}"


def owner_of(installation: str, cluster: InferenceCluster) -> ClusterOwner:
    """Return the owner of a cluster's objects.

    Before the cluster is applied it has no uid, and its digits are `UNKNOWN_DIGITS`.
    """
    return owner_named(installation, cluster.metadata.name, cluster.metadata.uid)


def owner_named(installation: str, name: str, uid: str) -> ClusterOwner:
    known = installation and uid
    return ClusterOwner(
        installation or UNKNOWN_INSTALLATION,
        name,
        names.digest(installation, name, uid) if known else UNKNOWN_DIGITS,
    )


def owner_at(account: CloudAccount) -> ClusterOwner:
    """Return the owner for an account whose installation and cluster uid are known."""
    digits = names.digest(account.installation, account.cluster, account.cluster_uid)
    return ClusterOwner(account.installation, account.cluster, digits)


def pool_name(pool: str) -> str:
    """Return the name of a node pool at the cloud, at most 40 characters.

    It is the pool's own name if the cloud accepts that.
    """
    return (
        pool
        if _POOL_NAME.fullmatch(pool)
        else names.hashed_name(pool, (pool,), _HASHED_POOL_MAX)
    )


def aws_tags(owner: ClusterOwner, key: str, name: str) -> dict[str, str]:
    return {
        labels.CLOUD_OWNER: owner.digits,
        labels.CLUSTER: owner.cluster,
        labels.CLOUD_OBJECT: key,
        labels.INSTALLATION: owner.installation,
        "Name": name,
    }


def gcp_labels(owner: ClusterOwner, key: str) -> dict[str, str]:
    """Return the labels of an object at Google Cloud, which allows neither `/` nor `.`.

    `key` contains the pool's name at the cloud, not the name in the spec.
    """
    return {
        labels.GCP_OWNER: owner.digits,
        labels.GCP_CLUSTER: names.slug(owner.cluster)[:_GCP_LABEL_MAX].rstrip("-"),
        labels.GCP_OBJECT: key.replace("/", "_"),
    }


def gcp_description(owner: ClusterOwner, key: str) -> str:
    """Return the mark of an object at Google Cloud that has no labels."""
    return f"{_GCP_MARK}{owner.digits} object={key}"


def is_mark(description: str) -> bool:
    """Return True if a description is the mark of any owner."""
    return description.startswith(_GCP_MARK)


def is_our_service(service: str) -> bool:
    """Return True if a load balancer's Service, as `namespace/name`, is the Gateway's.

    Load balancers of other Services belong to users.
    """
    return service.startswith(_GATEWAY_SERVICE)


def is_our_claim(claim: str) -> bool:
    """Return True if the claim of a volume is a cache's.

    Other volumes belong to users.
    """
    return claim.startswith(names.CACHE_CLAIM_PREFIX)
