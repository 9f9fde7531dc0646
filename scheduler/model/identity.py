"""What identifies a deployment and a replica to the scheduler: the owner of replicas, and the uid of a replica."""

from __future__ import annotations

import hashlib

# Namespace and name of the deployment that owns a replica or waits for capacity.
Owner = tuple[str, str]

# Namespace and name of a deployment, cluster, and the pool there that is not used for the deployment for a while.
RefusedPool = tuple[str, str, str, str]


def named_in(namespace: str, owner: Owner) -> str:
    """Name a deployment in a text that users of a namespace read: of another namespace they are not to know which deployments it has."""
    return "/".join(owner) if owner[0] == namespace else "a deployment of another namespace"


def replica_uid(namespace: str, deployment: str, origin: tuple[str, str], cluster: str, index: int) -> str:
    """Make the uid of a new replica: the same for a repeated request, a different one for every other request or place.

    `origin` is the uid of the deployment and the id of the request that placed the replica.
    """
    parts = (namespace, deployment, *origin, cluster, str(index))
    text = "".join(f"{len(part)}:{part}" for part in parts)
    digits = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
