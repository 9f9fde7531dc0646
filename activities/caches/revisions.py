"""Resolve the source of a cache to a commit or digest.

Every cluster then stages the same revision, whenever it starts.
"""

from collections.abc import Mapping
from typing import Protocol

from temporalio import activity

from activities.caller import check_caller
from activities.observe.cache import MODEL_CACHE
from activities.render.cache.artifact import Artifact, read_artifact
from activities.render.inputs.facts import CacheInput
from activities.render_errors import as_activity_errors
from activities.secrets.credentials import read_credential
from activities.secrets.store import SecretReader
from api_types.messages.caches import ResolvedRevision, ResolveRevision


class RevisionSource(Protocol):
    """The lookup of a revision at a hub or a registry."""

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """Return the commit or digest to which the artifact's reference points.

        `credential` is a token, a docker config or empty. Raises InvalidInput if the
        reference does not exist, CredentialsInvalid, Throttled, or ServerError if the
        response is missing or invalid.
        """
        ...


class RevisionActivities:
    """Resolves revisions, with one source per kind of artifact."""

    def __init__(
        self, store: SecretReader, sources: Mapping[str, RevisionSource]
    ) -> None:
        self._store = store
        self._sources = sources

    @activity.defn
    async def resolve_revision(self, order: ResolveRevision) -> ResolvedRevision:
        """Resolve the revision at its source.

        A missing credential is not an error here, because public metadata needs none.
        Raises the errors of `RevisionSource.resolve`.
        """
        check_caller(MODEL_CACHE, order.namespace, order.name)
        wanted = CacheInput(
            order.namespace,
            order.name,
            uid="",
            generation=0,
            cluster="",
            spec=order.spec,
        )
        with as_activity_errors():
            artifact = read_artifact(wanted)
        credential = await read_credential(
            self._store, order.namespace, artifact.credential, artifact.credential_key
        )
        return ResolvedRevision(
            revision=await self._sources[artifact.source].resolve(
                artifact, credential.value
            )
        )
