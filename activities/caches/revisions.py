"""Resolve the source of a cache to a commit or digest, so that every cluster stages the same one, at whatever time."""

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
    """A hub or a registry, as far as resolving a revision needs it."""

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """Give the commit or digest that the artifact's reference points to; `credential` is a token or a docker config, or empty.

        Raises InvalidInput (it does not exist), CredentialsInvalid, Throttled or ServerError (no response, or an invalid one).
        """
        ...


class RevisionActivities:
    """Resolves revisions, with one source per kind of artifact."""

    def __init__(self, store: SecretReader, sources: Mapping[str, RevisionSource]) -> None:
        self._store = store
        self._sources = sources

    @activity.defn
    async def resolve_revision(self, order: ResolveRevision) -> ResolvedRevision:
        """Resolve at the source. A missing credential is not waited for: public metadata needs none. Raises what the source raises."""
        check_caller(MODEL_CACHE, order.namespace, order.name)
        wanted = CacheInput(order.namespace, order.name, uid="", generation=0, cluster="", spec=order.spec)
        with as_activity_errors():
            artifact = read_artifact(wanted)
        credential = await read_credential(self._store, order.namespace, artifact.credential, artifact.credential_key)
        return ResolvedRevision(revision=await self._sources[artifact.source].resolve(artifact, credential.value))
