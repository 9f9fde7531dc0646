"""The identity of deployments and replicas in the scheduler."""

from __future__ import annotations

import hashlib

# Namespace and name of the deployment that owns a replica or waits for capacity.
Owner = tuple[str, str]

# (namespace, deployment, cluster, pool): the deployment does not use the pool for a
# while.
RefusedPool = tuple[str, str, str, str]


def named_in(namespace: str, owner: Owner) -> str:
    """Return the name of a deployment for a text that users of `namespace` read.

    The names of deployments in other namespaces are not disclosed.
    """
    return (
        "/".join(owner)
        if owner[0] == namespace
        else "a deployment of another namespace"
    )


def replica_uid(
    namespace: str, deployment: str, origin: tuple[str, str], cluster: str, index: int
) -> str:
    """Return the uid of a new replica.

    A repeated request has the same uid. Every other request or place has another one.
    `origin` is the uid of the deployment and the id of the request that placed the
    replica.
    """
    parts = (namespace, deployment, *origin, cluster, str(index))
    text = "".join(f"{len(part)}:{part}" for part in parts)
    digits = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
