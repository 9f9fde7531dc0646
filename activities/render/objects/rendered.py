"""The result of rendering: objects, and a summary of them for the status."""

from dataclasses import dataclass

from activities.render.objects.manifest import RenderedObject
from activities.render.objects.propagation import PropagatedCopy

WAITING_FOR_CACHE = "WaitingForCache"


@dataclass(frozen=True)
class RenderedEngine:
    """One engine's workload.

    `size` is the number of pods of a copy. `template_hashes` has one hash per member,
    the serving member first. With `recreate_on_change` the cluster does not allow
    changes of this workload in place, so a new template or size requires deleting and
    creating it.
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
        """The hash of the serving pod template."""
        return self.template_hashes[0]


@dataclass(frozen=True)
class RenderedRouting:
    """The routing of a replica.

    `surface` is `pool` or `service`. `connector` and `decode_port` are set for
    PrefillDecode only.
    """

    surface: str
    connector: str = ""
    decode_port: int | None = None


@dataclass(frozen=True)
class Rendered:
    """The objects of one replica or cache on one cluster.

    `objects` are in the order of apply, all in `namespace` unless cluster-scoped.
    `hash` covers all of them. `held` is the reason for which workloads are left out for
    now, or empty. `copies` are Secrets to fill and apply before any workload.
    `inputs_hash` covers all inputs of rendering except the spec.
    """

    objects: tuple[RenderedObject, ...]
    hash: str
    warnings: tuple[str, ...]
    workload_name: str
    namespace: str
    engines: tuple[RenderedEngine, ...] = ()
    routing: RenderedRouting | None = None
    held: str = ""
    copies: tuple[PropagatedCopy, ...] = ()
    inputs_hash: str = ""
