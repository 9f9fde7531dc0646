"""Where the pods of an engine find weights: on the volume claim of a cache, or in an image that their nodes pull.

A pod that cannot mount its volume waits without an error of its own, so what no cluster can do is refused here, in words.
"""

from activities.render.engines.context import Context
from activities.render.engines.spec import Engine
from activities.render.inputs.findings import ImageVolumesUnsupported
from activities.render.objects import contract
from activities.render.objects.manifest import Json

_ONE_NODE = "ReadWriteOnce"
# Before that it is alpha: without subPath, and off on every managed cluster.
_IMAGES_SINCE = (1, 33)
# Until then the feature gate ImageVolume is off unless an administrator sets it.
_IMAGES_BY_DEFAULT_SINCE = (1, 35)


def check_cluster(context: Context) -> None:
    """Raise ImageVolumesUnsupported for a cluster that is too old for images as volumes; warn where they have to be switched on."""
    pulled = [cache for cache in caches(context) if context.mount_of(cache).image]
    if not pulled or context.cluster.at_least(*_IMAGES_BY_DEFAULT_SINCE):
        return
    version, named = context.facts.kubernetes_version, ", ".join(pulled)
    where = f"cluster {context.cluster.name} runs Kubernetes {version}"
    if not context.cluster.at_least(*_IMAGES_SINCE):
        since = ".".join(map(str, _IMAGES_SINCE))
        problem = f"ModelCache {named}: {where}, and images as volumes need {since}: upgrade it, or remove spec.volume.image"
        raise ImageVolumesUnsupported(f"ModelReplica {context.replica.namespace}/{context.replica.name}", (problem,))
    since = ".".join(map(str, _IMAGES_BY_DEFAULT_SINCE))
    context.findings.warn(
        f"ModelCache {named}",
        f"{where}, where images as volumes need the feature gate ImageVolume; it is on by default since {since}. Without it the cluster "
        "refuses the pods with 'must specify a volume type'",
    )


def check_storage_classes(context: Context) -> None:
    """Warn of volumes of nodes that nothing on the cluster would make: new pods wait for them without a word; running ones have theirs."""
    known = context.facts.storage_classes
    if known is None:
        return
    for cache in caches(context):
        own = context.mount_of(cache).node_local
        if own and own.storage_class_name not in known:
            context.findings.warn(
                f"ModelCache {cache}",
                f"cluster {context.cluster.name} has no StorageClass {own.storage_class_name}, so new pods wait for their volumes: "
                "create it there, or name in spec.volume.storageClassName one that exists",
            )


def check_nodes(context: Context) -> None:
    """Refuse pods on several nodes for a volume of one node at a time, and warn where they may be on several."""
    for cache, engines in caches(context).items():
        if context.mount_of(cache).node_local and cache != context.spec.cache:
            context.findings.problem(
                f"ModelCache {cache}",
                "only the model of a replica may be nodeLocal, and this is of an adapter: remove spec.volume.nodeLocal",
            )
        if context.mount_of(cache).access_mode != _ONE_NODE:
            continue
        pools = sorted({member.pool for engine in engines for member in engine.members})
        pods = sum(engine.copies * engine.size for engine in engines)
        where, what = f"ModelCache {cache}", f"its volume has accessMode {_ONE_NODE}, which pods on one node at a time can mount"
        if len(pools) > 1:
            context.findings.problem(
                where, f"{what}, and engines are in the pools {', '.join(pools)}: use a cache with accessMode ReadWriteMany"
            )
        elif pods > 1:
            context.findings.warn(
                where,
                f"{what}, and this replica has {pods} pods: those on a second node wait for ever (Multi-Attach error). Have one pod, or "
                "use a cache with accessMode ReadWriteMany",
            )


def check_pull_secrets(context: Context) -> None:
    """Refuse Secrets that the platform makes in the namespace: nodes would pull images of a tenant with its credentials."""
    for cache in caches(context):
        secret = context.mount_of(cache).pull_secret
        if secret and contract.is_made_by_platform(secret):
            context.findings.problem(f"ModelCache {cache}", f"pullSecret {secret!r} {contract.PLATFORM_NAME_REFUSED}")


def volume(context: Context, cache: str) -> Json:
    """Give the source of the volume with what a cache holds, which is ready."""
    image = context.mount_of(cache).image
    if image:
        return {"image": {"reference": image, "pullPolicy": "IfNotPresent"}}
    own = context.mount_of(cache).node_local
    if own:
        claim = {
            "accessModes": [_ONE_NODE],
            "storageClassName": own.storage_class_name,
            "resources": {"requests": {"storage": f"{own.size_gib}Gi"}},
        }
        return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    return {"persistentVolumeClaim": {"claimName": context.claim_of(cache)}}


def pull_secrets(context: Context, engine: Engine) -> list[str]:
    """Name the Secrets with which nodes pull the images of an engine's caches."""
    secrets = [context.mount_of(cache).pull_secret for cache, engines in caches(context).items() if engine in engines]
    return [secret for secret in secrets if secret]


def caches(context: Context) -> dict[str, list[Engine]]:
    """Give the caches of a replica with the engines that mount them."""
    found = {context.spec.cache: list(context.spec.engines)} if context.spec.cache else {}
    for engine in context.spec.engines:
        for adapter in engine.adapters:
            users = found.setdefault(adapter.cache, [])
            if engine not in users:
                users.append(engine)
    return found
