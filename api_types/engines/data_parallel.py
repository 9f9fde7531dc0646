"""Mistakes in the flags of data-parallel ranks over the pods of a group.

vLLM has three ways to spread requests over ranks, and llm-d deploys all of them:
internal (one server for all ranks), hybrid (one server per pod), and external (one
server per rank). SGLang has the internal one alone.
"""

from collections.abc import Iterator

from api_types.engines import profiles
from api_types.engines.facts import EngineFacts, EngineFinding, is_known
from api_types.engines.flags import command_lines, find_flag
from api_types.engines.program import EngineProgram

SIZE = ("--data-parallel-size", "-dp", "--dp", "--dp-size")
LOCAL = ("--data-parallel-size-local", "-dpl")
_HYBRID = ("--data-parallel-hybrid-lb", "-dph")
_EXTERNAL = (
    "--data-parallel-external-lb",
    "-dpe",
    "--data-parallel-rank",
    "-dpn",
    "--data-parallel-multi-port-external-lb",
    "-dpmpel",
)
_HEADLESS = "--headless"


def data_parallel_findings(facts: EngineFacts) -> Iterator[EngineFinding]:
    """Yield the mistakes in flags of data parallelism."""
    if facts.profile.name == profiles.VLLM:
        yield from _vllm(facts)
    if facts.profile.name == profiles.SGLANG and facts.load_balancing in (
        "Hybrid",
        "External",
    ):
        yield EngineFinding(
            f"dataParallel.loadBalancing is {facts.load_balancing}, and Workers of "
            "SGLang answer no requests; set it to Internal",
            certain=is_known(facts),
        )
    yield from _counts(facts)


def _vllm(facts: EngineFacts) -> Iterator[EngineFinding]:
    shape, worker = facts.load_balancing, facts.worker
    in_use = _shape_in_use(facts.server)
    if worker and in_use in ("Hybrid", "External") and shape != in_use:
        yield EngineFinding(
            f"the flags of vLLM are those of {in_use.lower()} load balancing, in which "
            "Workers serve too, and requests reach only the Leader; set "
            f"dataParallel.loadBalancing: {in_use}"
        )
    serves_too = shape in ("Hybrid", "External")
    if worker and serves_too and find_flag(worker, _HEADLESS):
        yield EngineFinding(
            f"with {_HEADLESS} a Worker listens on no port, and with "
            f"dataParallel.loadBalancing {shape} it serves requests; remove the flag, or "
            "set Internal",
            certain=True,
            worker=True,
        )
    is_direct = not any(
        place == "shell text" for place, _ in command_lines(facts.server)
    )
    if facts.ranks > 1 and not shape and is_direct and not in_use:
        yield EngineFinding(
            f"dataParallel.size {facts.ranks} opens a port for each rank, and one server "
            "of vLLM has one port; set dataParallel.loadBalancing: Internal, or start "
            "each rank with its own --port"
        )


def _shape_in_use(program: EngineProgram) -> str:
    if find_flag(program, *_HYBRID):
        return "Hybrid"
    return "External" if find_flag(program, *_EXTERNAL) else ""


def _counts(facts: EngineFacts) -> Iterator[EngineFinding]:
    """Compare the flags with `dataParallel.size`, the number of ranks of each pod."""
    if not facts.load_balancing:
        return
    total = facts.ranks * facts.pods
    shown = f"{facts.pods} pods with {facts.ranks} ranks each"
    for names, wanted in ((SIZE, total), (LOCAL, facts.ranks)):
        flag = find_flag(facts.server, *names)
        if flag and flag.number is not None and flag.number != wanted:
            yield EngineFinding(
                f"{flag.name} is {flag.value}, and dataParallel.size describes {shown}; "
                f"set it to {wanted}, or change dataParallel.size",
                certain=facts.profile.name in (profiles.VLLM, profiles.SGLANG),
            )
