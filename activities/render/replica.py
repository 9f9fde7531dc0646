"""Render one ModelReplica: read the spec, then build its objects in the order of apply.

RBAC and claims come before the pods that need them, and pods before the objects that
route traffic to them. No step waits for another: there is no traffic before the
endpoint is published.
"""

from activities.render.cache import own_volume
from activities.render.engines import (
    disaggregation,
    disruption,
    pods,
    queueing,
    rendezvous,
    workloads,
)
from activities.render.engines.admission import read_spec
from activities.render.engines.claims import claim_templates
from activities.render.engines.container import weights
from activities.render.engines.context import Context
from activities.render.engines.options import adapters, parallel, topology
from activities.render.engines.spec import DECODE, EngineSpec
from activities.render.inputs.facts import ClusterInput, ReplicaInput
from activities.render.inputs.findings import Findings, InvalidSpec, NotRenderable
from activities.render.inputs.settings import RenderSettings
from activities.render.objects import components, contract, inventory_keys
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    labelled_item,
    set_hash,
    with_template_hash,
)
from activities.render.objects.queues import KUEUE
from activities.render.objects.rendered import (
    WAITING_FOR_CACHE,
    Rendered,
    RenderedEngine,
    RenderedRouting,
)
from activities.render.routing import (
    monitoring,
    picker,
    picker_config,
    rewrites,
    routes,
)
from activities.render.version import renderer_hash
from api_types.digests import short_hash
from api_types.engines.flags import find_flag
from api_types.messages.cluster_work import CacheMount

__all__ = [
    "InvalidSpec",
    "NotRenderable",
    "Rendered",
    "RenderedObject",
    "render_replica",
]


def render_replica(
    replica: ReplicaInput, cluster: ClusterInput, settings: RenderSettings
) -> Rendered:
    """Return the objects that the replica needs on its cluster.

    While its cache is not ready there, the engine workloads are left out and `held` is
    the reason. Raises InvalidSpec with all problems at once. Raises DRAUnavailable,
    ImageVolumesUnsupported, RoutingUnsupported, ServingStackMissing or
    TopologyUnsupported where the cluster lacks a feature that the spec needs.
    """
    subject = f"ModelReplica {replica.namespace}/{replica.name}"
    findings = Findings()
    spec = read_spec(replica.spec, findings)
    rewrites.check_names(spec.engines, findings)
    findings.raise_if_any(subject)
    context = Context.of(replica, cluster, settings, spec, findings)
    routes.check_surface(context)
    topology.check_cluster(context)
    weights.check_cluster(context)
    weights.check_storage_classes(context)
    weights.check_nodes(context)
    weights.check_pull_secrets(context)
    queueing.check_queue(context)
    _check_served_model(context)

    missing_cache = bool(spec.cache) and not context.cache_claim
    held = ""
    if missing_cache or adapters.missing_claims(context):
        held = WAITING_FOR_CACHE
    rendered_engines = [_engine(context, engine) for engine in spec.in_apply_order]
    workloads_ = [item for item, _ in rendered_engines]
    objects = _objects(context, [] if held else workloads_)
    findings.raise_if_any(subject)
    return Rendered(
        objects=tuple(objects),
        hash=set_hash(objects),
        warnings=tuple(findings.warnings),
        workload_name=context.workload,
        namespace=context.namespace,
        engines=tuple(engine for _, engine in rendered_engines),
        routing=_routing(context),
        held=held,
        inputs_hash=_inputs_hash(context),
    )


def _objects(
    context: Context, engine_workloads: list[RenderedObject]
) -> list[RenderedObject]:
    """Return all objects in the order of apply. Without workloads they are held."""
    pooled = context.facts.routing == routes.POOL
    objects = [*claim_templates(context), *topology.compute_domains(context)]
    if pooled:
        objects += picker.rbac(context, monitored=monitoring.monitored(context))
    if engine_workloads:
        objects += queueing.pod_groups(context)
        objects += disruption.budgets(context)
        objects += engine_workloads
    if pooled:
        objects += picker.workload(context)
    objects += routes.surface(context)
    objects += monitoring.monitors(context)
    return objects


def _inputs_hash(context: Context) -> str:
    """Return a digest of all inputs of rendering except the spec."""
    replica = context.replica
    mounted = [
        [name, context.claim_of(name), context.mount_of(name).wire()]
        for name in weights.caches(context)
    ]
    copied = [dict(replica.propagated), replica.propagated_hash]
    from_others = [mounted, replica.cache_gib, copied, dict(replica.picker_flags)]
    return short_hash(
        [renderer_hash(context.settings), context.facts.rendered_from(), from_others]
    )


def _engine(
    context: Context, engine: EngineSpec
) -> tuple[RenderedObject, RenderedEngine]:
    port = disaggregation.engine_port(context, engine)
    templates, hashes = [], []
    for member in engine.members:
        template = parallel.open_ports(
            engine, pods.pod_template(context, engine, member, port)
        )
        template = adapters.mount_adapters(context, engine, member, template)
        if context.spec.disaggregated:
            template = disaggregation.decorate(context, engine, member, template, port)
        template = _filled(context, template)
        template = rendezvous.wait_for_leader(context, engine, member, template)
        template = disruption.drained(context, engine, member, template)
        template = topology.keep_together(context, engine, member, template)
        template, template_hash = with_template_hash(
            queueing.queue_pod(context, engine, member, template)
        )
        templates.append(template)
        hashes.append(template_hash)
    workload = _workload(context, engine, templates)
    block_size = picker_config.block_size(context, engine)
    item = labelled_item(
        context.owner,
        f"{inventory_keys.ENGINE_PREFIX}{engine.name}",
        components.ENGINE,
        workload,
        engine=engine.name,
        extra_labels=queueing.workload_labels(context),
        extra_annotations={
            **queueing.workload_annotations(context),
            **topology.workload_annotations(context, engine),
            **context.engine_annotations(engine),
        },
    )
    return item, RenderedEngine(
        name=engine.name,
        kind=workload["kind"],
        workload_name=workload["metadata"]["name"],
        copies=engine.copies,
        size=engine.size,
        template_hashes=tuple(hashes),
        kv_block_size=block_size.tokens,
        kv_block_size_source=block_size.source,
        recreate_on_change=engine.gang and context.facts.scheduler_type == KUEUE,
    )


def _filled(context: Context, template: Json) -> Json:
    """Add the container that fills the model's volume, if each pod has its own volume."""
    cache = context.spec.cache
    own = context.mount_of(cache).node_local if cache and context.cache_claim else None
    if own is None:
        return template
    for source in own_volume.sources(
        context.replica.namespace, {cache: CacheMount(node_local=own)}
    ):
        if contract.is_made_by_platform(source.name):
            context.findings.problem(
                f"ModelCache {cache}", f"{source} {contract.PLATFORM_NAME_REFUSED}"
            )
    of = (context.replica.namespace, cache, own)
    return own_volume.fill_before_start(
        template,
        contract.CACHE_VOLUME,
        of,
        context.replica.propagated,
        context.settings,
    )


def _workload(context: Context, engine: EngineSpec, templates: list[Json]) -> Json:
    metadata = context.metadata(context.engine_name(engine))
    if not engine.gang:
        return workloads.deployment(metadata, engine.copies, templates[0])
    leader, worker = templates
    return workloads.leader_worker_set(
        metadata, engine.copies, engine.size, leader, worker
    )


def _routing(context: Context) -> RenderedRouting:
    surface = context.facts.routing
    if not context.spec.disaggregated:
        return RenderedRouting(surface)
    decode = context.spec.phase(DECODE)
    return RenderedRouting(
        surface,
        connector=disaggregation.connector(context, decode),
        decode_port=disaggregation.engine_port(context, decode),
    )


def _check_served_model(context: Context) -> None:
    served = {}
    for engine in context.spec.engines:
        flag = find_flag(engine.server, "--served-model-name") or find_flag(
            engine.server, "--model"
        )
        if flag:
            served[engine.name] = flag.value
    if len(set(served.values())) > 1:
        shown = ", ".join(f"{name}: {model}" for name, model in served.items())
        context.findings.warn(
            "spec", f"engines serve different models ({shown}), yet share one address"
        )
