"""Every setting of the renderers with a value other than its default.

Replicas and caches are rendered with these settings.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from activities.render.cache.volumes import render_cache
from activities.render.inputs.facts import CacheInput
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from activities.render.replica import render_replica
from api_types.resources.model_cache import SOURCE_BLOCKS
from tests.activities.render.builders import (
    CLAIM,
    a_cluster,
    a_gang,
    a_member,
    a_pair,
    a_replica,
    an_engine,
)

ENGINE_PODS = "[okp]*/model-serving-*"
PICKERS = "[okp]*/epp"


def _replica(settings: RenderSettings) -> Rendered:
    member = a_member(annotations={"acme.example/mark": "x"})
    replica = a_replica(
        an_engine("main", member),
        cache="qwen",
        cache_claim=CLAIM,
        propagated_hash="rotated",
    )
    return render_replica(replica, a_cluster(), settings)


def _kai(settings: RenderSettings) -> Rendered:
    return render_replica(
        a_replica(a_gang()), a_cluster(scheduler_type="kai"), settings
    )


def _pair(settings: RenderSettings) -> Rendered:
    return render_replica(
        a_replica(*a_pair(), mode="PrefillDecode"), a_cluster(), settings
    )


def _cache(
    source: str, block: Mapping[str, Any]
) -> Callable[[RenderSettings], Rendered]:
    field = SOURCE_BLOCKS[source]
    revision = "c" * 40 if source == "HuggingFace" else "sha256:" + "ab" * 32
    cache = CacheInput(
        "ml-team",
        "qwen",
        "uid-2",
        1,
        "eu-1",
        {"source": source, field: {"sizeGiB": 20, **block}},
        revision,
    )
    return lambda settings: render_cache(
        cache, a_cluster(storage_class_name="rwx"), settings
    )


SCENARIOS: dict[str, Callable[[RenderSettings], Rendered]] = {
    "one": _replica,
    "kai": _kai,
    "pair": _pair,
    "hub": _cache("HuggingFace", {"repo": "acme/tiny"}),
    "oci": _cache("OCI", {"image": "registry.acme.example/qwen:1"}),
    "tls": _cache("OCI", {"image": "registry.acme.example/qwen:1", "plainHTTP": True}),
    "s3": _cache("S3", {"bucket": "models", "endpoint": "http://minio.minio:9000"}),
}


class Case(NamedTuple):
    """A setting, a value other than its default, and the objects that it changes.

    `shows` is part of each of these objects.
    """

    field: str
    key: str
    value: Any
    changes: tuple[str, ...]
    shows: str = ""


MIRROR = "mirror.acme.example/all"
YES, NO = True, False
# The followers of the gang wait for their leader in a container of the platform.
GANG = "kai/model-serving-main"
PLATFORM_CONTAINERS = ("pair/model-serving-alpha", GANG, "*/cache-hydrate")
TRACED = (PICKERS, "pair/model-serving-alpha")
CASES = [
    Case(
        "image_mirror",
        "images.mirror",
        MIRROR,
        (PICKERS, *PLATFORM_CONTAINERS),
        f'"image": "{MIRROR}/',
    ),
    Case(
        "pull_secrets",
        "images.pullSecrets",
        ["robot"],
        (PICKERS, *PLATFORM_CONTAINERS),
        '"name": "mpx-robot-',
    ),
    Case("workload_namespace", "workloads.namespace", "shared", ("*/*",), '"shared"'),
    Case(
        "engine_requests",
        "workloads.engineRequests",
        {"cpu": "3"},
        (ENGINE_PODS,),
        '"requests": {"cpu": "3"}',
    ),
    Case(
        "shm_size_limit",
        "workloads.shmSizeLimit",
        "7Gi",
        (ENGINE_PODS,),
        '"sizeLimit": "7Gi"',
    ),
    Case(
        "termination_grace_seconds",
        "workloads.terminationGraceSeconds",
        77,
        (ENGINE_PODS,),
        '"terminationGracePeriodSeconds": 77',
    ),
    Case(
        "toleration_keys",
        "workloads.tolerationKeys",
        ["acme.example/gpu"],
        (ENGINE_PODS,),
        '"key": "acme.example/gpu"',
    ),
    Case(
        "refused_annotations",
        "workloads.refusedAnnotations",
        ["acme.example/"],
        ("one/*",),
        "acme.example/mark",
    ),
    Case(
        "startup_seconds_max",
        "workloads.startupSeconds",
        600,
        (ENGINE_PODS,),
        '"startupProbe"',
    ),
    Case(
        "epp_image",
        "epp.image",
        "acme.example/epp:v0.9.4",
        (PICKERS,),
        '"acme.example/epp:v0.9.4"',
    ),
    Case("epp_replicas", "epp.replicas", 3, (PICKERS, "[okp]*/epp-budget")),
    Case("longest_generation", "stack.longestGeneration", 90, (PICKERS,)),
    Case(
        "epp_failure_mode",
        "epp.failureMode",
        "FailClose",
        ("*/inference-pool",),
        '"FailClose"',
    ),
    Case(
        "epp_metrics_auth",
        "epp.metricsAuth",
        YES,
        (PICKERS, "*/epp-clusterrole*", "*/epp-metrics-token", "*/monitor-epp"),
        "epp",
    ),
    Case("epp_extra_flags", "epp.extraFlags", {"v": "4"}, (PICKERS,), '"--v=4"'),
    Case(
        "epp_requests",
        "epp.requests",
        {"cpu": "2"},
        (PICKERS,),
        '"requests": {"cpu": "2"}',
    ),
    Case(
        "epp_limits",
        "epp.limits",
        {"memory": "8Gi"},
        (PICKERS,),
        '"limits": {"memory": "8Gi"}',
    ),
    Case(
        "pod_tolerations",
        "stack.tolerations",
        [{"key": "dedicated", "operator": "Exists"}],
        (PICKERS,),
        '"tolerations": [{"key": "dedicated", "operator": "Exists"}]',
    ),
    Case(
        "pod_priority_class",
        "stack.priorityClassName",
        "infrastructure",
        (PICKERS,),
        '"priorityClassName": "infrastructure"',
    ),
    Case(
        "pod_affinity",
        "stack.affinity",
        {"nodeAffinity": {}},
        (PICKERS,),
        '"affinity": {"nodeAffinity": {}}',
    ),
    Case(
        "epp_kv_cache_weight",
        "epp.kvCacheUtilizationWeight",
        5,
        (PICKERS, "*/epp-config"),
    ),
    Case(
        "sidecar_image",
        "sidecar.image",
        "acme.example/side:v0.9.1",
        ("pair/model-serving-alpha",),
        '"acme.example/side:v0.9.1"',
    ),
    Case("secrets_propagation", "secrets.propagation", "all", ("plan",), "mpx-hub-"),
    Case(
        "restart_on_rotation",
        "secrets.restartOnRotation",
        YES,
        ("one/model-serving-main",),
        '"rotated"',
    ),
    Case("monitoring_enabled", "monitoring.enabled", NO, ("*/monitor-*",)),
    Case(
        "kai_mode",
        "scheduler.kaiMode",
        "explicit",
        ("kai/model-serving-main", "kai/gang-main"),
    ),
    Case(
        "scheduler_priority_class",
        "scheduler.priorityClass",
        "inference",
        ("kai/model-serving-main",),
        '"inference"',
    ),
    Case("tracing_enabled", "tracing.enabled", YES, TRACED, "OTEL_SERVICE_NAME"),
    Case(
        "tracing_endpoint",
        "tracing.endpoint",
        "https://otel.acme.example:4317",
        TRACED,
        "otel.acme.example",
    ),
    Case("tracing_sampler", "tracing.sampler", "always_on", TRACED, '"always_on"'),
    Case("tracing_sampler_argument", "tracing.samplerArgument", 0.25, TRACED, '"0.25"'),
    Case(
        "hydration_image",
        "cache.hydrationImage",
        "acme.example/python:3.12",
        ("hub/cache-hydrate", GANG),
        '"acme.example/python:3.12"',
    ),
    Case(
        "hub_endpoint",
        "cache.hubEndpoint",
        "https://hub.acme.example",
        ("hub/cache-hydrate",),
        "HF_ENDPOINT",
    ),
    Case(
        "pip_index_url",
        "cache.pipIndexUrl",
        "https://pip.acme.example/simple",
        ("hub/cache-hydrate",),
        "PIP_INDEX_URL",
    ),
    Case(
        "kit_image",
        "oci.kitImage",
        "acme.example/kit:2",
        ("oci/cache-hydrate",),
        '"acme.example/kit:2"',
    ),
    Case("allow_plain_http", "oci.allowPlainHttp", YES, ("tls/*",)),
    Case("allow_plain_s3", "s3.allowPlainHttp", YES, ("s3/*",)),
    Case(
        "cache_mount_read_only",
        "cache.mountReadOnly",
        YES,
        ("one/model-serving-main",),
        '"readOnly": true',
    ),
    Case(
        "cache_active_deadline_seconds",
        "cache.activeDeadlineSeconds",
        99,
        ("hub/cache-hydrate", "oci/cache-hydrate"),
        ": 99",
    ),
]
# Without traces the other tracing settings change nothing.
WITH = {
    "tracing.endpoint": {"tracing": {"enabled": True}},
    "tracing.sampler": {"tracing": {"enabled": True}},
}
WITH["tracing.samplerArgument"] = WITH["tracing.sampler"]
