"""The configuration of the endpoint picker: how it selects the pod for a request.

The text and the image are one unit: plugin names change between releases of the picker. Three things would silently turn disaggregation
off: a decider left at zero tokens, a missing prefix producer, and a block size left to tune itself.
"""

import json
from dataclasses import dataclass

from activities.render.engines.context import Context
from activities.render.engines.flags import find_flag
from activities.render.engines.options.prefix_cache import TOPICS, event_format
from activities.render.engines.pods import member_path
from activities.render.engines.spec import DECODE, PREFILL, Engine
from activities.render.objects.manifest import Json, compact
from api_types import labels
from api_types.pins import apiversions

FILE = "epp-config.yaml"
_BLOCK_SIZE_DEFAULT = 16
_BLOCK_SIZE_MAX = 1024
_BLOCK_SIZE_FLAGS = ("--block-size", "--page-size")
_PREFIX_BLOCKS_MAX = 256
_LRU_CAPACITY_PER_SERVER = 31250
# Prompts with fewer uncached tokens are not worth a second pod.
_PREFILL_TOKENS_MIN = 16

_PRODUCER = "approx-prefix-cache-producer"
_PRECISE_PRODUCER = "precise-prefix-cache-producer"
_EVENT_WORKERS = 8
_NOTIFICATIONS = "endpoint-notification-source"
_PREFIX_SCORER = "prefix-cache-scorer"
_QUEUE_SCORER = "queue-scorer"
_KV_CACHE_SCORER = "kv-cache-utilization-scorer"
_LORA_SCORER = "lora-affinity-scorer"
_PICKER = "max-score-picker"
# The gate and the block have one name.
_FLOW_CONTROL = "flowControl"
_DECIDER = "prefix-based-pd-decider"
_FILTERS = {PREFILL: "prefill-filter", DECODE: "decode-filter"}


@dataclass(frozen=True)
class BlockSize:
    """The KV block size of an engine in tokens, and where it was read."""

    tokens: int
    source: str


def block_size(context: Context, engine: Engine) -> BlockSize:
    """Read the KV block size from an engine's flags, else give the default."""
    flag = find_flag(engine.server, *_BLOCK_SIZE_FLAGS)
    tokens = flag.number if flag else None
    if flag is None or tokens is None:
        return BlockSize(_BLOCK_SIZE_DEFAULT, "default")
    if not 1 <= tokens <= _BLOCK_SIZE_MAX:
        context.findings.warn(
            member_path(engine, engine.server),
            f"{flag.name} {flag.value} is outside 1 to {_BLOCK_SIZE_MAX}: the picker counts in blocks of {_BLOCK_SIZE_DEFAULT} tokens",
        )
        return BlockSize(_BLOCK_SIZE_DEFAULT, "default")
    return BlockSize(tokens, f"{flag.name} in {flag.place}")


def config_text(context: Context) -> str:
    """Give the picker's configuration file. It is JSON, which is also YAML and has one spelling."""
    disaggregated = context.spec.disaggregated
    tokens = block_size(context, context.spec.picker_engine).tokens
    scorers = _scorers(context)
    plugins = [
        *_producers(context, tokens),
        _plugin(_PREFIX_SCORER, **({"prefixMatchInfoProducerName": _PRECISE_PRODUCER} if context.spec.precise_cache else {})),
        *([_plugin("disagg-headers-handler")] if disaggregated else []),
        *(_plugin(name) for name in scorers if name != _PREFIX_SCORER),
        *([_plugin(name) for name in _FILTERS.values()] if disaggregated else []),
        _plugin(_PICKER),
    ]
    if disaggregated:
        plugins += [
            _plugin(_DECIDER, nonCachedTokens=_PREFILL_TOKENS_MIN),
            _plugin("disagg-profile-handler", deciders={"prefill": _DECIDER}),
        ]
    profiles = [("prefill", _FILTERS[PREFILL]), ("decode", _FILTERS[DECODE])] if disaggregated else [("default", "")]
    config = {
        "apiVersion": apiversions.PICKER_CONFIG,
        "kind": "EndpointPickerConfig",
        **_flow_control(context),
        "plugins": plugins,
        **_data_layer(context),
        "schedulingProfiles": [_profile(name, filter_name, scorers) for name, filter_name in profiles],
    }
    return json.dumps(config, indent=2) + "\n"


def _plugin(name: str, **parameters: object) -> Json:
    return compact(type=name, parameters=parameters)


def _producers(context: Context, tokens: int) -> list[Json]:
    """Give what tells the prefix scorer about the pods, and what that needs.

    The precise one follows the events of the engines. `blockSize` and the fields of the events are those of llm-d-kv-cache v0.8.0, which
    picker v0.9.0 still reads. With `speculativeIndexing` the picker counts the blocks of a request as held by the pod that it has picked
    before that pod's events say so, so that requests with one beginning that follow each other closely go to one pod. The seed of the
    engines' hashes is of no matter: the picker hashes the tokens of events and of requests itself. Its selector of pods is one that
    engines here do not all match.
    """
    precise = context.spec.precise_cache
    if precise is None:
        approximate = _plugin(
            _PRODUCER,
            autoTune=False,
            blockSizeTokens=tokens,
            maxPrefixBlocksToMatch=_PREFIX_BLOCKS_MAX,
            lruCapacityPerServer=_LRU_CAPACITY_PER_SERVER,
        )
        return [approximate]
    events = {
        "topicFilter": TOPICS,
        "concurrency": _EVENT_WORKERS,
        **({"engineType": engine} if (engine := event_format(context.spec.picker_engine)) else {}),
        "discoverPods": True,
        "podDiscoveryConfig": {"podLabelSelector": f"{labels.SERVING}={context.workload}", "socketPort": precise.port},
    }
    return [
        _plugin("token-producer", modelName=precise.model, vllm={"url": precise.tokenizer_url}),
        _plugin(_NOTIFICATIONS),
        _plugin(_PRECISE_PRODUCER, tokenProcessorConfig={"blockSize": tokens}, speculativeIndexing=True, kvEventsConfig=events),
    ]


def _data_layer(context: Context) -> Json:
    if context.spec.precise_cache is None:
        return {}
    # The metrics of the pods are read beside it, as without this block.
    return {"dataLayer": {"sources": [{"pluginRef": _NOTIFICATIONS, "extractors": [{"pluginRef": _PRECISE_PRODUCER}]}]}}


def _flow_control(context: Context) -> Json:
    limits = context.spec.flow_control
    if limits is None:
        return {}
    found = compact(
        maxRequests=str(limits.max_requests) if limits.max_requests else None,
        defaultRequestTTL=f"{limits.queue_seconds}s" if limits.queue_seconds else None,
    )
    return {"featureGates": [_FLOW_CONTROL], **({_FLOW_CONTROL: found} if found else {})}


def _scorers(context: Context) -> dict[str, int]:
    """Give the scorers with their weights, in order: pods that have the prefix, or the adapter, that a request needs, come first."""
    kv_cache_weight = context.settings.epp_kv_cache_weight
    adapted = any(engine.adapters for engine in context.spec.engines)
    return {
        _PREFIX_SCORER: 2,
        _QUEUE_SCORER: 1,
        **({_KV_CACHE_SCORER: kv_cache_weight} if kv_cache_weight else {}),
        **({_LORA_SCORER: 1} if adapted else {}),
    }


def _profile(name: str, filter_name: str, scorers: dict[str, int]) -> Json:
    return {
        "name": name,
        "plugins": [
            *([{"pluginRef": filter_name}] if filter_name else []),
            {"pluginRef": _PICKER},
            *({"pluginRef": scorer, "weight": weight} for scorer, weight in scorers.items()),
        ],
    }
