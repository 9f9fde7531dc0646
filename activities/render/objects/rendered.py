"""The result of rendering: objects, and the short facts that a status shows instead of the objects."""

from dataclasses import dataclass

from activities.render.objects.manifest import Item
from activities.render.objects.propagation import Copy

WAITING_FOR_CACHE = "WaitingForCache"


@dataclass(frozen=True)
class RenderedEngine:
    """One engine's workload. `size` counts pods per copy; `template_hashes` has one hash per member, the serving one first.

    `recreate_on_change`: the cluster does not allow changes of this workload in place, so a new template or size
    means delete and create.
    """

    name: str
    kind: str
    workload_name: str
    copies: int
    size: int
    template_hashes: tuple[str, ...]
    kv_block_size: int
    kv_block_size_source: str
    recreate_on_change: bool = False

    @property
    def template_hash(self) -> str:
        """The hash on the serving pods."""
        return self.template_hashes[0]


@dataclass(frozen=True)
class RenderedRouting:
    """How requests are routed: `surface` is `pool` or `service`; connector and port are set for PrefillDecode only.

    `fail_close`: the gateway refuses requests while the endpoint picker does not answer.
    """

    surface: str
    connector: str = ""
    decode_port: int | None = None
    fail_close: bool = False


@dataclass(frozen=True)
class Rendered:
    """Everything for one replica or cache on one cluster.

    `objects` are in the order of apply, all in `namespace` unless cluster-scoped. `hash` covers them all. `held` is the
    reason why workloads are left out for now, empty if none is. `copies` are Secrets to fill and apply before any workload.
    `inputs_hash` is over all that it was rendered from besides the spec.
    """

    objects: tuple[Item, ...]
    hash: str
    warnings: tuple[str, ...]
    workload_name: str
    namespace: str
    engines: tuple[RenderedEngine, ...] = ()
    routing: RenderedRouting | None = None
    held: str = ""
    copies: tuple[Copy, ...] = ()
    inputs_hash: str = ""
