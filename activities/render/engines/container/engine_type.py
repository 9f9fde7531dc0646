"""Which engine runs in a pod, as far as its command and its image tell.

The endpoint picker reads the metrics of each pod under the names of its engine, which it takes from a label; a pod without the label is
read as vLLM, so that the load of any other engine is never seen. What is not recognised gets no label.
"""

import re
from collections.abc import Mapping

from activities.render.engines.flags import command_lines, find_flag
from activities.render.engines.spec import Member
from activities.render.inputs.findings import Findings
from activities.render.objects import contract

VLLM = "vllm"
SGLANG = "sglang"
TRT_LLM = "trtllm-serve"
# The key that pickers of the Gateway API project read, and that of llm-d still does where its own is missing.
_OLDER_LABEL = "inference.networking.k8s.io/engine-type"
# A program, with or without its folder, or a module after `python -m`. The first word that tells decides.
_COMMANDS = (
    (VLLM, re.compile(r"(.*/bin/)?vllm(\..*)?")),
    (SGLANG, re.compile(r"(.*/bin/)?sglang(\..*)?")),
    (TRT_LLM, re.compile(r"(.*/bin/)?trtllm-serve")),
)
_IMAGES = ((SGLANG, "sglang"), (TRT_LLM, "tensorrt-llm"), (TRT_LLM, "trtllm"), (VLLM, "vllm"))
_METRICS_FLAG = "--enable-metrics"


def engine_type(member: Member) -> str:
    """Give the picker's name for the engine of a member; empty if it is none that is recognised."""
    for place, words in command_lines(member):
        if place == "args":  # arguments name models and files, which may be called like an engine
            continue
        for word in words:
            if found := next((name for name, pattern in _COMMANDS if pattern.fullmatch(word)), ""):
                return found
    # The last two parts, such as `lmsysorg/sglang`, without tag and digest.
    folder, _, name = member.image.lower().partition("@")[0].rpartition("/")
    image = f"{folder.rpartition('/')[2]}/{name.partition(':')[0]}"
    return next((name for name, part in _IMAGES if part in image), "")


def label(member: Member, where: str, findings: Findings) -> Mapping[str, str]:
    """Give the label for the pods of a serving member; empty where the user has set it, or nothing is recognised."""
    told = member.labels.get(contract.LLM_D_ENGINE_TYPE, member.labels.get(_OLDER_LABEL))
    found = engine_type(member)
    if (told or found) == SGLANG and not find_flag(member, _METRICS_FLAG):
        findings.warn(
            where,
            f"SGLang without {_METRICS_FLAG} has no metrics: the endpoint picker cannot see its load; add the flag to args",
        )
    return {contract.LLM_D_ENGINE_TYPE: found} if found and told is None else {}
