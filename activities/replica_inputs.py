"""Turn an order into what rendering needs: the replica, the cluster, the copies of Secrets, and the claim of its cache."""

from dataclasses import dataclass

from activities.copies import Needed, needed_copies
from activities.render.facts import ClusterFacts as RenderFacts
from activities.render.facts import InvalidFacts, ReplicaInput
from activities.render.findings import InvalidSpec, NotRenderable
from activities.render.rendered import Rendered
from activities.render.replica import render_replica
from activities.render.settings import RenderSettings
from activities.secrets import SecretStore
from api_types.errors import InvalidInput, Unsupported
from api_types.messages import ReplicaOrder


@dataclass(frozen=True)
class Prepared:
    """What a replica puts on its cluster: its own objects, and its share in copies."""

    rendered: Rendered
    needed: Needed

    @property
    def warnings(self) -> list[str]:
        """Everything that a user should be told."""
        return [*self.rendered.warnings, *self.needed.warnings]


async def prepare(store: SecretStore, order: ReplicaOrder, settings: RenderSettings) -> Prepared:
    """Gather and render.

    Raises InvalidInput or Unsupported if the replica cannot be rendered, CredentialsInvalid if a Secret is missing; the condition's reason
    is the error's first detail.
    """
    needed = await needed_copies(store, order, settings)
    try:
        return Prepared(render_replica(_replica(order, needed), _facts(order), settings), needed)
    except InvalidSpec as error:
        raise InvalidInput(str(error), error.reason) from error
    except NotRenderable as error:
        raise Unsupported(str(error), error.reason) from error
    except InvalidFacts as error:
        raise InvalidInput(str(error), InvalidSpec.reason) from error


def _replica(order: ReplicaOrder, needed: Needed) -> ReplicaInput:
    return ReplicaInput(
        namespace=order.namespace,
        name=order.name,
        uid=order.uid,
        generation=order.generation,
        deployment=order.deployment,
        cluster=order.cluster,
        index=order.index,
        spec=order.spec,
        cache_claim=order.cache_claim,
        drivers=order.facts.drivers,
        propagated=needed.rewrites,
        propagated_hash=needed.hash,
        picker_flags=order.picker_flags,
    )


def _facts(order: ReplicaOrder) -> RenderFacts:
    facts = order.facts
    return RenderFacts(
        name=order.cluster,
        kubernetes_version=facts.kubernetes_version,
        dra_version=facts.dra_version,
        routing=facts.routing,
        scheduler_type=facts.scheduler_type,
        mesh_provider=facts.mesh_provider,
        storage_class_name=facts.storage_class_name,
        gateway_address=facts.gateway_address,
        apis=frozenset(facts.apis),
    )
