"""Find out which commit or digest a cache's source means now, so that every cluster stages the same one, however late."""

from collections.abc import Mapping
from typing import Protocol

from temporalio import activity

from activities.render.cache.artifact import Artefact, read_artefact
from activities.render.inputs.facts import CacheInput
from activities.render_errors import as_activity_errors
from activities.secrets.credentials import read_credential
from activities.secrets.store import SecretStore
from api_types.messages.caches import ResolvedRevision, ResolveRevision


class RevisionSource(Protocol):
    """A hub or a registry, as far as pinning needs it."""

    async def resolve(self, artefact: Artefact, credential: str) -> str:
        """Give the commit or digest that the artefact's reference means now; `credential` is a token or a docker config, or empty.

        Raises InvalidInput (there is no such thing), CredentialsInvalid, Throttled or ServerError (no answer, or a bad one).
        """
        ...


class RevisionActivities:
    """Pins, over one source per kind of artefact."""

    def __init__(self, store: SecretStore, sources: Mapping[str, RevisionSource]) -> None:
        self._store = store
        self._sources = sources

    @activity.defn
    async def resolve_revision(self, order: ResolveRevision) -> ResolvedRevision:
        """Ask the source. A credential that is missing is not waited for: public metadata needs none. Raises what the source raises."""
        wanted = CacheInput(order.namespace, order.name, uid="", generation=0, cluster="", spec=order.spec)
        with as_activity_errors():
            artefact = read_artefact(wanted)
        credential = await read_credential(self._store, order.namespace, artefact.credential, artefact.credential_key)
        return ResolvedRevision(revision=await self._sources[artefact.source].resolve(artefact, credential.value))
