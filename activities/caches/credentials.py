"""Read the Secrets and ConfigMaps of a cache together.

They are the credential of its source and the objects that `spec.hydration` references.
"""

from collections.abc import Sequence
from typing import NamedTuple

from activities.render.cache.artifact import Artifact
from activities.render.cache.options import HydrationOptions
from activities.secrets.credentials import StoredCredential, read_credential
from activities.secrets.store import SecretKind, SecretReader
from api_types.digests import content_hash


class KeyOf(NamedTuple):
    """One key of a Secret or ConfigMap in the cache's namespace.

    An empty key means the key of a docker config.
    """

    name: str
    key: str
    kind: SecretKind = "Secret"


def references_of(artifact: Artifact, options: HydrationOptions) -> list[KeyOf]:
    """Return all objects that a download needs, the credential of the source first.

    The name of the credential is empty if the source needs none.
    """
    others = (
        KeyOf(copy.name, copy.key, "Secret" if copy.kind == "Secret" else "ConfigMap")
        for copy in options.copies
    )
    return [KeyOf(artifact.credential, artifact.credential_key), *others]


async def read_together(
    store: SecretReader, namespace: str, references: Sequence[KeyOf]
) -> StoredCredential:
    """Read the value of the first reference and check that the others exist.

    `version` changes when any of them changes. `missing` names one that cannot be used.
    Raises PermissionDenied for a Secret that belongs to the platform.
    """
    found = [
        await read_credential(store, namespace, *reference) for reference in references
    ]
    missing = next((each.missing for each in found if each.missing), "")
    versions = [each.version for each in found]
    together = content_hash(versions) if any(versions[1:]) else versions[0]
    return StoredCredential(
        version="" if missing else together, missing=missing, value=found[0].value
    )
