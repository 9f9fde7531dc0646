"""The tokens by which clouds recognize a repeated call."""

import uuid

from activities.clouds.desired.owner import ClusterOwner

_NAMESPACE = uuid.UUID("5f0b5f3e-0c5b-5b5e-9a55-6d6f64656c70")


def token_of(owner: ClusterOwner, key: str, digest: str, epoch: int) -> str:
    """Return the token of an object.

    It depends on the object's content and on the epoch, which increases after the
    object was observed to be gone.
    """
    return str(
        uuid.uuid5(_NAMESPACE, "\n".join((owner.digits, key, digest, str(epoch))))
    )
