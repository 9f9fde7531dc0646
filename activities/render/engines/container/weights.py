"""The source of an engine's weights: a cache's volume claim, or an image.

A pod that cannot mount its volume waits without an error. So combinations that no
cluster can mount are rejected here with a message.
"""

from activities.render.engines.context import Context
from activities.render.engines.spec import EngineSpec
from activities.render.inputs.findings import ImageVolumesUnsupported
from activities.render.objects import contract
from activities.render.objects.manifest import Json

_ONE_NODE = "ReadWriteOnce"
# In earlier releases the feature is alpha, has no subPath, and is disabled on every
# managed cluster.
_IMAGES_SINCE = (1, 33)
# In earlier releases the feature gate ImageVolume is disabled unless an administrator
# enables it.
_IMAGES_BY_DEFAULT_SINCE = (1, 35)


def check_cluster(context: Context) -> None:
    """Raise ImageVolumesUnsupported if the cluster is too old for image volumes.

    Also warn where a feature gate has to be enabled.
    """
    pulled = [cache for cache in caches(context) if context.mount_of(cache).image]
    if not pulled or context.cluster.at_least(*_IMAGES_BY_DEFAULT_SINCE):
        return
    version, named = context.facts.kubernetes_version, ", ".join(pulled)
    where = f"cluster {context.cluster.name} runs Kubernetes {version}"
    if not context.cluster.at_least(*_IMAGES_SINCE):
        since = ".".join(map(str, _IMAGES_SINCE))
        problem = (
            f"ModelCache {named}: {where}, and images as volumes need {since}: "
            "upgrade it, or remove spec.volume.image"
        )
        raise ImageVolumesUnsupported(
            context.subject,
            (problem,),
        )
    since = ".".join(map(str, _IMAGES_BY_DEFAULT_SINCE))
    context.findings.warn(
        f"ModelCache {named}",
        f"{where}, where images as volumes need the feature gate ImageVolume; "
        f"it is on by default since {since}. Without it the cluster "
        "refuses the pods with 'must specify a volume type'",
    )


def check_storage_classes(context: Context) -> None:
    """Warn about node-local volumes whose StorageClass does not exist on the cluster.

    New pods wait for such volumes without an error. Running pods keep theirs.
    """
    known = context.facts.storage_classes
    if known is None:
        return
    for cache in caches(context):
        own = context.mount_of(cache).node_local
        if own and own.storage_class_name not in known:
            context.findings.warn(
                f"ModelCache {cache}",
                f"cluster {context.cluster.name} has no StorageClass "
                f"{own.storage_class_name}, so new pods wait for their volumes: create it "
                "there, or set spec.volume.storageClassName to an existing one",
            )


def check_nodes(context: Context) -> None:
    """Report pods on several nodes that use a volume of one node at a time.

    It is a problem if they must be on several nodes, and a warning if they may be.
    """
    for cache, engines in caches(context).items():
        if context.mount_of(cache).node_local and cache != context.spec.cache:
            context.findings.problem(
                f"ModelCache {cache}",
                "only the model of a replica may be nodeLocal, and this is of an adapter: "
                "remove spec.volume.nodeLocal",
            )
        if context.mount_of(cache).access_mode != _ONE_NODE:
            continue
        pools = sorted({member.pool for engine in engines for member in engine.members})
        pods = sum(engine.copies * engine.size for engine in engines)
        where = f"ModelCache {cache}"
        what = (
            f"its volume has accessMode {_ONE_NODE}, "
            "which pods on one node at a time can mount"
        )
        if len(pools) > 1:
            context.findings.problem(
                where,
                f"{what}, and engines are in the pools {', '.join(pools)}: "
                "use a cache with accessMode ReadWriteMany",
            )
        elif pods > 1:
            context.findings.warn(
                where,
                f"{what}, and this replica has {pods} pods: those on a second node wait "
                "without end (Multi-Attach error). Have one pod, or use a cache with "
                "accessMode ReadWriteMany",
            )


def check_pull_secrets(context: Context) -> None:
    """Report pull secrets that the platform creates in the namespace.

    Nodes would pull a tenant's images with the platform's credentials.
    """
    for cache in caches(context):
        secret = context.mount_of(cache).pull_secret
        if secret and contract.is_made_by_platform(secret):
            context.findings.problem(
                f"ModelCache {cache}",
                f"pullSecret {secret!r} {contract.PLATFORM_NAME_REFUSED}",
            )


def volume(context: Context, cache: str) -> Json:
    """Return the source of a volume with the content of a cache that is ready."""
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


def pull_secrets(context: Context, engine: EngineSpec) -> list[str]:
    """Return the Secrets with which nodes pull the images of an engine's caches."""
    secrets = [
        context.mount_of(cache).pull_secret
        for cache, engines in caches(context).items()
        if engine in engines
    ]
    return [secret for secret in secrets if secret]


def caches(context: Context) -> dict[str, list[EngineSpec]]:
    """Return the caches of a replica with the engines that mount them."""
    found = (
        {context.spec.cache: list(context.spec.engines)} if context.spec.cache else {}
    )
    for engine in context.spec.engines:
        for adapter in engine.adapters:
            users = found.setdefault(adapter.cache, [])
            if engine not in users:
                users.append(engine)
    return found
