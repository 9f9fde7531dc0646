"""A volume for each pod of an engine on the disk of its node.

An init container fills the volume before the engine starts. It is an ephemeral volume,
which Pod Security `baseline` admits, and it is deleted with its pod. The init container
reads copies of Secrets like any pod.
"""

from collections.abc import Iterator, Mapping

from activities.render.cache.access import check_plain_http, options_of
from activities.render.cache.artifact import read_artifact
from activities.render.cache.container import CONTAINER, Hydrator
from activities.render.cache.options import SourceCopy, credential_of
from activities.render.inputs.facts import CacheInput
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.manifest import Json
from activities.render.objects.propagation import Reference, pull_secrets
from api_types.messages.cluster_work import CacheMount, NodeLocal

_PREFIX = f"{CONTAINER}-"


def sources(namespace: str, mounts: Mapping[str, CacheMount]) -> Iterator[Reference]:
    """Yield the Secrets and ConfigMaps that pods read to fill their own volumes."""
    for name, mount in mounts.items():
        if not mount.node_local:
            continue
        cache = _cache(namespace, name, mount.node_local)
        credential = credential_of(read_artifact(cache))
        for copy in (credential, *options_of(cache).copies):
            if copy.name:
                keys = (copy.key,) if copy.key else ()
                yield Reference(copy.kind, copy.name, keys)


def fill_before_start(
    template: Json,
    volume: str,
    cache: tuple[str, str, NodeLocal],
    copies: Mapping[str, str],
    settings: RenderSettings,
) -> Json:
    """Return a pod template that fills its `volume` before the engine starts.

    `cache` is the namespace, name and content of the ModelCache. `copies` has the form
    of `ReplicaInput.propagated`. The container is the first init container, because a
    sidecar among them may wait for the engine.
    """
    wanted = _cache(*cache)
    artifact, options = read_artifact(wanted), options_of(wanted)
    check_plain_http(wanted, artifact, settings)

    def name_of(copy: SourceCopy) -> str:
        return copies.get(f"{copy.kind}/{copy.name}", copy.name)

    container, volumes = Hydrator(
        artifact, options, settings, name_of, volume, prefix=_PREFIX, as_they_are=True
    ).build()
    spec = template["spec"]
    secrets = [
        *spec.get("imagePullSecrets", ()),
        *options.pull_references(name_of),
        *pull_secrets(settings),
    ]
    filled = {
        **spec,
        "initContainers": [container, *spec.get("initContainers", ())],
        "volumes": [*spec["volumes"], *volumes],
    }
    if secrets:
        unique = dict.fromkeys(tuple(secret.items()) for secret in secrets)
        filled["imagePullSecrets"] = [dict(secret) for secret in unique]
    return {**template, "spec": filled}


def _cache(namespace: str, name: str, content: NodeLocal) -> CacheInput:
    return CacheInput(
        namespace, name, "", 0, "", content.spec, revision=content.revision
    )
