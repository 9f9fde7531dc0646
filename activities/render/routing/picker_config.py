"""The configuration of the endpoint picker: how it selects the pod for a request.

The text and the image belong together: plugin names change between releases of the
picker. Three mistakes would silently disable disaggregation: a decider with a threshold
of zero tokens, a missing prefix producer, and a block size that tunes itself.
"""

import json
from dataclasses import dataclass

from activities.render.engines.context import Context
from activities.render.engines.options.prefix_cache import TOPICS, event_format
from activities.render.engines.pods import member_path
from activities.render.engines.spec import DECODE, PREFILL, EngineSpec
from activities.render.objects.manifest import Json, compact
from api_types import labels
from api_types.engines.flags import find_flag
from api_types.engines.profiles import METRICS_PATH
from api_types.pins import apiversions

FILE = "epp-config.yaml"
_BLOCK_SIZE_DEFAULT = 16
_BLOCK_SIZE_MAX = 1024
_BLOCK_SIZE_FLAGS = ("--block-size", "--page-size")
_PREFIX_BLOCKS_MAX = 256
_LRU_CAPACITY_PER_SERVER = 31250
# Prompts with fewer uncached tokens do not justify a second pod.
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
_METRICS_SOURCE = "metrics-data-source"
# The first parser that knows the path of a request reads it. Without the last one, the
# picker answers 400 to every path that the others do not know, such as `/v1/rerank`.
_PARSERS = (
    "openai-parser",
    "anthropic-parser",
    "vllmhttp-parser",
    "passthrough-parser",
)
# A pod with a full queue scores below an idle pod that lacks the prefix only if the
# other scorers together outweigh the prefix.
_PREFIX_WEIGHT, _QUEUE_WEIGHT = 3, 3
# The feature gate and the configuration block have the same name.
_FLOW_CONTROL = "flowControl"
_DECIDER = "prefix-based-pd-decider"
_FILTERS = {PREFILL: "prefill-filter", DECODE: "decode-filter"}


@dataclass(frozen=True)
class BlockSize:
    """The KV block size of an engine in tokens, and where it was found."""

    tokens: int
    source: str


def block_size(context: Context, engine: EngineSpec) -> BlockSize:
    """Return the KV block size from an engine's flags, or the default."""
    flag = find_flag(engine.server, *_BLOCK_SIZE_FLAGS)
    tokens = flag.number if flag else None
    if flag is None or tokens is None:
        return BlockSize(_BLOCK_SIZE_DEFAULT, "default")
    if not 1 <= tokens <= _BLOCK_SIZE_MAX:
        context.findings.warn(
            member_path(engine, engine.server),
            f"{flag.name} {flag.value} is outside 1 to {_BLOCK_SIZE_MAX}: "
            f"the picker counts in blocks of {_BLOCK_SIZE_DEFAULT} tokens",
        )
        return BlockSize(_BLOCK_SIZE_DEFAULT, "default")
    return BlockSize(tokens, f"{flag.name} in {flag.place}")


def config_text(context: Context) -> str:
    """Return the picker's configuration file.

    It is JSON, which is valid YAML and has a single spelling.
    """
    disaggregated = context.spec.disaggregated
    tokens = block_size(context, context.spec.picker_engine).tokens
    scorers = _scorers(context)
    prefix_scorer = _plugin(_PREFIX_SCORER)
    if context.spec.precise_cache:
        prefix_scorer = _plugin(
            _PREFIX_SCORER, prefixMatchInfoProducerName=_PRECISE_PRODUCER
        )
    plugins = [*_producers(context, tokens), prefix_scorer]
    if disaggregated:
        plugins.append(_plugin("disagg-headers-handler"))
    plugins += [_plugin(name) for name in scorers if name != _PREFIX_SCORER]
    if disaggregated:
        plugins += [_plugin(name) for name in _FILTERS.values()]
    plugins += [_plugin(_PICKER), *_metrics_source(context)]
    plugins += [_plugin(name) for name in _PARSERS]
    profiles = [("default", "")]
    if disaggregated:
        plugins += [
            _plugin(_DECIDER, nonCachedTokens=_PREFILL_TOKENS_MIN),
            _plugin("disagg-profile-handler", deciders={"prefill": _DECIDER}),
        ]
        profiles = [("prefill", _FILTERS[PREFILL]), ("decode", _FILTERS[DECODE])]
    config = {
        "apiVersion": apiversions.PICKER_CONFIG,
        "kind": "EndpointPickerConfig",
        **_flow_control(context),
        "plugins": plugins,
        "requestHandler": {"parsers": [{"pluginRef": name} for name in _PARSERS]},
        **_data_layer(context),
        "schedulingProfiles": [
            _profile(name, filter_name, scorers) for name, filter_name in profiles
        ],
    }
    return json.dumps(config, indent=2) + "\n"


def _plugin(name: str, **parameters: object) -> Json:
    return compact(type=name, parameters=parameters)


def _metrics_source(context: Context) -> list[Json]:
    """Return the plugin that reads engines' metrics, if their path is not the default.

    The picker has one path for all pods.
    """
    paths = {engine.profile.metrics_path for engine in context.spec.engines}
    path = context.spec.picker_engine.profile.metrics_path
    if len(paths) > 1:
        context.findings.warn(
            "spec",
            f"engines have different metrics paths ({', '.join(sorted(paths))}): the "
            f"endpoint picker reads {path or 'none'} of all pods",
        )
    if path in ("", METRICS_PATH):
        return []
    return [_plugin(_METRICS_SOURCE, path=path)]


def _producers(context: Context, tokens: int) -> list[Json]:
    """Return the plugins that track which prefixes each pod has cached.

    The precise producer follows the events of the engines. `blockSize` and the event
    fields are defined by llm-d-kv-cache v0.8.0, which picker v0.9.0 still reads. With
    `speculativeIndexing` the picker counts the blocks of a request as cached by the
    selected pod before that pod's events confirm it, so that requests with the same
    prefix which follow each other closely go to one pod. The seed of the engines'
    hashes does not matter: the picker hashes the tokens of events and requests itself.
    The default pod selector does not match all engines of Modelplane, so the
    configuration sets one.
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
    events: Json = {"topicFilter": TOPICS, "concurrency": _EVENT_WORKERS}
    engine = event_format(context.spec.picker_engine)
    if engine:
        events["engineType"] = engine
    events["discoverPods"] = True
    events["podDiscoveryConfig"] = {
        "podLabelSelector": f"{labels.SERVING}={context.workload}",
        "socketPort": precise.port,
    }
    return [
        _plugin(
            "token-producer",
            modelName=precise.model,
            vllm={"url": precise.tokenizer_url},
        ),
        _plugin(_NOTIFICATIONS),
        _plugin(
            _PRECISE_PRODUCER,
            tokenProcessorConfig={"blockSize": tokens},
            speculativeIndexing=True,
            kvEventsConfig=events,
        ),
    ]


def _data_layer(context: Context) -> Json:
    if context.spec.precise_cache is None:
        return {}
    # The picker also reads the metrics of the pods, as it does without this block.
    return {
        "dataLayer": {
            "sources": [
                {
                    "pluginRef": _NOTIFICATIONS,
                    "extractors": [{"pluginRef": _PRECISE_PRODUCER}],
                }
            ]
        }
    }


def _flow_control(context: Context) -> Json:
    limits = context.spec.flow_control
    if limits is None:
        return {}
    found = compact(
        maxRequests=str(limits.max_requests) if limits.max_requests else None,
        defaultRequestTTL=f"{limits.queue_seconds}s" if limits.queue_seconds else None,
    )
    found = {_FLOW_CONTROL: found} if found else {}
    return {"featureGates": [_FLOW_CONTROL], **found}


def _scorers(context: Context) -> dict[str, int]:
    """Return the weights of the scorers, in order.

    The first scorers prefer pods that already have the prefix, or the adapter, of a
    request.
    """
    kv_cache_weight = context.settings.epp_kv_cache_weight
    scorers = {_PREFIX_SCORER: _PREFIX_WEIGHT, _QUEUE_SCORER: _QUEUE_WEIGHT}
    if kv_cache_weight:
        scorers[_KV_CACHE_SCORER] = kv_cache_weight
    if any(engine.adapters for engine in context.spec.engines):
        scorers[_LORA_SCORER] = 1
    return scorers


def _profile(name: str, filter_name: str, scorers: dict[str, int]) -> Json:
    plugins: list[Json] = [{"pluginRef": filter_name}] if filter_name else []
    plugins.append({"pluginRef": _PICKER})
    plugins += [
        {"pluginRef": scorer, "weight": weight} for scorer, weight in scorers.items()
    ]
    return {"name": name, "plugins": plugins}
