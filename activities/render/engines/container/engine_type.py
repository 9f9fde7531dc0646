"""The label with which the endpoint picker selects the names of an engine's metrics.

The picker reads the metrics of a pod without the label as those of vLLM, so it never
sees the load of another engine. An engine that the picker does not know gets no label.
"""

from collections.abc import Mapping

from activities.render.engines.spec import EngineSpec
from activities.render.inputs.findings import Findings
from activities.render.objects import contract
from api_types.engines import profiles
from api_types.engines.flags import find_flag

VLLM = "vllm"
SGLANG = "sglang"
_NAMES = {
    profiles.VLLM: VLLM,
    profiles.SGLANG: SGLANG,
    profiles.TRT_LLM: "trtllm-serve",
}
# The key that pickers of the Gateway API project read. The llm-d picker falls back to
# it.
_OLDER_LABEL = "inference.networking.k8s.io/engine-type"
_METRICS_FLAG = "--enable-metrics"


def engine_type(engine: EngineSpec) -> str:
    """Return the picker's name for an engine; "" for an engine that it does not know."""
    return _NAMES.get(engine.profile.name, "")


def label(engine: EngineSpec, where: str, findings: Findings) -> Mapping[str, str]:
    """Return the label for the serving pods of an engine.

    Returns {} if the user has set it, or the picker does not know the engine.
    """
    server = engine.server
    told = server.labels.get(
        contract.LLM_D_ENGINE_TYPE, server.labels.get(_OLDER_LABEL)
    )
    found = engine_type(engine)
    if (told or found) == SGLANG and not find_flag(server, _METRICS_FLAG):
        findings.warn(
            where,
            f"SGLang without {_METRICS_FLAG} has no metrics: "
            "the endpoint picker cannot see its load; add the flag to args",
        )
    return {contract.LLM_D_ENGINE_TYPE: found} if found and told is None else {}
