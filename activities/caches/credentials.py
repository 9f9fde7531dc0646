"""The Secrets and ConfigMaps with which a cache is staged, read together: the credential of its source, and what `spec.hydration` names."""

from collections.abc import Sequence
from typing import NamedTuple

from activities.render.cache.artifact import Artifact
from activities.render.cache.options import HydrationOptions
from activities.secrets.credentials import Credential, read_credential
from activities.secrets.store import SecretKind, SecretReader
from api_types.digests import content_hash


class KeyOf(NamedTuple):
    """One key of a Secret or ConfigMap of the cache's namespace; an empty key is that of a docker config."""

    name: str
    key: str
    kind: SecretKind = "Secret"


def references_of(artifact: Artifact, options: HydrationOptions) -> list[KeyOf]:
    """Give all that a download needs, the credential of the source first; that one has no name if there is none."""
    others = (KeyOf(copy.name, copy.key, "Secret" if copy.kind == "Secret" else "ConfigMap") for copy in options.copies)
    return [KeyOf(artifact.credential, artifact.credential_key), *others]


async def read_together(store: SecretReader, namespace: str, references: Sequence[KeyOf]) -> Credential:
    """Read the first of the references, whose value is given, and check the others.

    `version` changes with any of them; `missing` names one that cannot be used. Raises PermissionDenied for one of the platform.
    """
    found = [await read_credential(store, namespace, *reference) for reference in references]
    missing = next((each.missing for each in found if each.missing), "")
    versions = [each.version for each in found]
    together = content_hash(versions) if any(versions[1:]) else versions[0]
    return Credential(version="" if missing else together, missing=missing, value=found[0].value)
