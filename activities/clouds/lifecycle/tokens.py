"""The tokens by which clouds recognize a repeated call (spec/provisioning.md 2.3)."""

import uuid

from activities.clouds.owner import Owner

_NAMESPACE = uuid.UUID("5f0b5f3e-0c5b-5b5e-9a55-6d6f64656c70")


def token_of(owner: Owner, key: str, digest: str, epoch: int) -> str:
    """Give the token of an object: another one only for another content, or after the object was seen gone."""
    return str(uuid.uuid5(_NAMESPACE, "\n".join((owner.digits, key, digest, str(epoch)))))
