"""What callers may not send: headers that steer a request, and paths that administer engines.

Gateways remove the headers and block the paths. Engines, pickers and sidecars trust
both, because their authors expect a gateway in front of them.
"""

from activities.render.objects.manifest import Json

# The headers by which routers, pickers and sidecars pass on the address, the worker, the
# rank or the model that they have chosen for a request. The comments name their readers.
STEERING_HEADERS = (
    # llm-d router, pkg/common/routing/common.go
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
    "x-llm-d-kv-cache-source-host-port",
    # Gateway API Inference Extension and llm-d router, pkg/epp/metadata/consts.go
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-model-name-rewrite",
    "x-llm-d-model-name-rewrite",
    # the OpenAI parser of both pickers
    "x-original-path",
    "x-forwarded-path",
    # Envoy's clusters of type ORIGINAL_DST
    "x-envoy-original-dst-host",
    # vLLM, SGLang and Dynamo
    "x-data-parallel-rank",
    # Dynamo, its frontend in routing mode `direct`
    "x-dp-rank",
    "x-prefill-dp-rank",
    "x-worker-instance-id",
    "x-prefill-instance-id",
    "x-dynamo-dp-rank",
    "x-dynamo-prefill-dp-rank",
    "x-dynamo-worker-instance-id",
    "x-dynamo-prefill-instance-id",
    "x-dynamo-routing-mode",
    # the router of SGLang
    "x-smg-target-worker",
)
# The session affinity of the llm-d router. Providers behind a ModelEndpoint use this
# name for other purposes, so only the gateways of clusters remove it.
SESSION_HEADER = "x-session-token"

# In a path, `*` matches within one segment, and each path includes everything below it.
ADMIN_PATHS = (
    # vLLM, docs/usage/security.md, and metrics of most engines
    "v1/load_lora_adapter",
    "v1/unload_lora_adapter",
    "metrics",
    "pause",
    "resume",
    "is_paused",
    "sleep",
    "is_sleeping",
    "wake_up",
    "collective_rpc",
    "reset_*",
    "scale_elastic_ep",
    "is_scaling_elastic_ep",
    "init_weight*",
    "update_weight*",
    "get_world_size",
    "abort_request*",
    "server_info",
    "start_profile",
    "stop_profile",
    # SGLang, python/sglang/srt/entrypoints/http_server.py
    "load_lora_adapter*",
    "unload_lora_adapter",
    "flush_cache",
    "clear_hicache_storage_backend",
    "hicache",
    "freeze_gc",
    "*_expert_distribution_record",
    "destroy_weights*",
    "send_weights*",
    "get_weights*",
    "get_remote_instance*",
    "weights_checker",
    "release_memory*",
    "resume_memory*",
    "slow_down",
    "*_internal_state",
    "get_server_info",
    "configure_logging",
    "pause_generation",
    "continue_generation",
    "*_external_corpus",
    # TensorRT-LLM, tensorrt_llm/serve/openai_server.py
    "prometheus",
    "perf_metrics",
    "kv_cache_events",
    "steady_clock_offset",
    # Triton, docs/protocol
    "v2/repository",
    "v2/systemsharedmemory",
    "v2/cudasharedmemory",
    "v2/logging",
    "v2/trace",
    "v2/models/*/trace",
    "v2/models/*/versions/*/trace",
    # NIM and LMDeploy
    "v1/metrics",
    "terminate",
    "wakeup",
    "distserve",
    # Ollama, docs/api.md
    "api/pull",
    "api/push",
    "api/create",
    "api/delete",
    "api/copy",
    "api/blobs",
    # llama.cpp, tools/server/README.md
    "slots",
    "props",
    "lora-adapters",
    "models/load",
    "models/unload",
    # Dynamo
    "clear_kv_blocks",
    "busy_threshold",
    "engine",
)
# The Gateway API allows this number of names in a filter.
_NAMES_MAX = 16
# Servers also read an encoded slash as a slash, and some merge several.
_SLASH = "(?:/|%2[Ff])+"
# Letters, digits and `-._~`, which nobody needs to encode: a server decodes them, while
# a gateway may compare the path as it is.
_ENCODED = "%(?:2[DdEe]|3[0-9]|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe])"


def admin_patterns(prefix: str) -> tuple[str, str, str]:
    """Return regular expressions that match the blocked paths below `prefix`.

    `prefix` starts with a slash and ends without one. The expressions are anchored,
    have the syntax of RE2, and are short enough for an HTTPRoute.
    """
    start = f"^{_literal(prefix)}{_SLASH}"
    of_one = [_literal(path) for path in ADMIN_PATHS if "/" not in path]
    of_more = [
        _SLASH.join(map(_literal, path.split("/")))
        for path in ADMIN_PATHS
        if "/" in path
    ]
    below = "(?:(?:/|%2[Ff]).*)?$"
    return (
        f"{start}(?:{'|'.join(of_one)}){below}",
        f"{start}(?:{'|'.join(of_more)}){below}",
        f"{start}.*{_ENCODED}.*$",
    )


def blocking_rule(prefix: str) -> Json:
    """Return the rule of an HTTPRoute that blocks the paths below `prefix`.

    Without backends a gateway answers 500 or 503, and nothing behind it sees the
    request. Gateways prefer the rule to one with the prefix, because its expressions
    are longer.
    """
    return {
        "matches": [
            {"path": {"type": "RegularExpression", "value": pattern}}
            for pattern in admin_patterns(prefix)
        ]
    }


def header_filters() -> tuple[Json, Json]:
    """Return the filters that remove steering headers, for a rule and for its backends.

    A rule and a backend may have one such filter each, with 16 names.
    """
    first, second = (
        {
            "type": "RequestHeaderModifier",
            "requestHeaderModifier": {"remove": list(names)},
        }
        for names in (STEERING_HEADERS[:_NAMES_MAX], STEERING_HEADERS[_NAMES_MAX:])
    )
    return first, second


def _literal(text: str) -> str:
    # Names and paths contain no other characters with a meaning in an expression.
    return text.replace(".", "\\.").replace("*", "[^/]*")
