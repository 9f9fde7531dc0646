"""Whose an object at a cloud is: names that contain the owner, and marks that say it.

An object is changed or deleted only where its mark names the cluster. The uid is in every name, so that a cluster which is created again
never meets what an earlier one of its name has left: clouds keep some deleted objects for weeks.
"""

import re
from dataclasses import dataclass

from api_types import labels, names
from api_types.messages.clouds import CloudAccount
from api_types.pins.charts import ENVOY_GATEWAY
from api_types.resources.inference_cluster import InferenceCluster

UNKNOWN_DIGITS = "xxxxxxxx"
"""Stands for the digits of a name where installation or uid are not known."""
UNKNOWN_INSTALLATION = "INSTALLATION"
"""Stands for the id of the installation where it is not known."""

SYSTEM_POOL = "system"

_VISIBLE_MAX = 22
_POOL_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
# A readable part of 30, a dash and eight digits.
_HASHED_POOL_MAX = 39
_GCP_LABEL_MAX = 63


# As Envoy Gateway names the Service of our Gateway, before its digits.
_GATEWAY_SERVICE = f"{ENVOY_GATEWAY.namespace}/envoy-{labels.SYSTEM_NAMESPACE}-{labels.GATEWAY_NAME}-"


@dataclass(frozen=True)
class Owner:
    """A cluster as the owner of cloud objects; `digits` are over installation, name and uid."""

    installation: str
    cluster: str
    digits: str

    @property
    def base(self) -> str:
        """The name that the names of its objects begin with: at most 31 characters, a letter first."""
        return f"{names.slug(self.cluster)[:_VISIBLE_MAX].rstrip('-')}-{self.digits}"

    @property
    def account(self) -> str:
        """The id of its GCP service account: 6 to 30 characters."""
        return f"mp-{self.digits}"


def owner_of(installation: str, cluster: InferenceCluster) -> Owner:
    """Give the owner mark of a cluster. Before it is applied it has no uid, and its digits are `UNKNOWN_DIGITS`."""
    return owner_named(installation, cluster.metadata.name, cluster.metadata.uid)


def owner_named(installation: str, name: str, uid: str) -> Owner:
    """Give the owner mark of a cluster by its identity."""
    known = installation and uid
    return Owner(installation or UNKNOWN_INSTALLATION, name, names.digest(installation, name, uid) if known else UNKNOWN_DIGITS)


def owner_at(account: CloudAccount) -> Owner:
    """Give the owner mark of the cluster that an account is used for. Its installation and uid are known."""
    digits = names.digest(account.installation, account.cluster, account.cluster_uid)
    return Owner(account.installation, account.cluster, digits)


def pool_name(pool: str) -> str:
    """Give the name of a node pool at the cloud: that of the pool where the cloud takes it, at most 40 characters."""
    return pool if _POOL_NAME.fullmatch(pool) else names.hashed_name(pool, (pool,), _HASHED_POOL_MAX)


def aws_tags(owner: Owner, key: str, name: str) -> dict[str, str]:
    """Give the tags of an object at AWS."""
    return {
        labels.CLOUD_OWNER: owner.digits,
        labels.CLUSTER: owner.cluster,
        labels.CLOUD_OBJECT: key,
        labels.INSTALLATION: owner.installation,
        "Name": name,
    }


def gcp_labels(owner: Owner, key: str) -> dict[str, str]:
    """Give the labels of an object at Google Cloud, whose labels have neither `/` nor `.`; `key` is of names, not of pools as written."""
    return {
        labels.GCP_OWNER: owner.digits,
        labels.GCP_CLUSTER: names.slug(owner.cluster)[:_GCP_LABEL_MAX].rstrip("-"),
        labels.GCP_OBJECT: key.replace("/", "_"),
    }


def gcp_description(owner: Owner, key: str) -> str:
    """Give the mark of an object at Google Cloud that has no labels."""
    return f"modelplane owner={owner.digits} object={key}"


def is_our_service(service: str) -> bool:
    """Whether a load balancer is of our Gateway, by its Service as `namespace/name`. Those of users are theirs (ruling 71)."""
    return service.startswith(_GATEWAY_SERVICE)


def is_our_claim(claim: str) -> bool:
    """Whether storage is that of a cache, by the name of its claim. That of users is theirs, with what is stored (ruling 71)."""
    return claim.startswith(names.CACHE_CLAIM_PREFIX)
