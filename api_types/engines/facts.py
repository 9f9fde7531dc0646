"""The facts about an engine that checks read, and their findings."""

from dataclasses import dataclass

from api_types.engines import profiles
from api_types.engines.flags import command_lines
from api_types.engines.profiles import (
    LISTENING,
    EngineProfile,
    from_command,
    repository,
)
from api_types.engines.program import EngineProgram

ARGS = "args"
COMMAND = "command"
ENV = "env"


@dataclass(frozen=True)
class EngineFinding:
    """A mistake: its text, the field of the container, and whether it is certain.

    `worker` means that it is in the Worker's container.
    """

    text: str
    field: str = ARGS
    certain: bool = False
    worker: bool = False


@dataclass(frozen=True)
class EngineFacts:
    """One engine of a deployment, as far as checks need it.

    Attributes:
        profile: the profile of the serving member.
        server: its program.
        devices: the devices that each of its pods requests; 0 if unknown.
        all_devices: the devices of all pods of a copy; 0 if unknown.
        pods: the number of pods of a copy.
        ports: the ports on which the pods accept requests.
        cache: the deployment has a ModelCache.
        adapters: the engine has LoRA adapters.
        drains_late: the pods have a grace period, and get SIGTERM at once.
        behind_sidecar: a sidecar listens on the ports, so the engine needs others.
        worker: the program of the Worker, if there is one.
        load_balancing: `dataParallel.loadBalancing`, or empty.
        ranks: `dataParallel.size`; 0 without dataParallel.

    """

    profile: EngineProfile
    server: EngineProgram
    devices: int = 0
    all_devices: int = 0
    pods: int = 1
    ports: range = range(8000, 8001)
    cache: bool = False
    adapters: bool = False
    drains_late: bool = False
    behind_sidecar: bool = False
    worker: EngineProgram | None = None
    load_balancing: str = ""
    ranks: int = 0


def is_known(facts: EngineFacts) -> bool:
    """Return whether the engine of the profile certainly reads the flags and variables.

    A script may ignore them, and a shell may start other programs beside the engine.
    """
    name, server = facts.profile.name, facts.server
    if name == profiles.CUSTOM or _shell(facts):
        return False
    return not server.command or from_command(server) == name


def is_official(facts: EngineFacts) -> bool:
    image = repository(facts.server.image)
    return (
        image in LISTENING[facts.profile.name].images
        or facts.profile.name == profiles.NIM
    )


def _shell(facts: EngineFacts) -> bool:
    return any(place == "shell text" for place, _ in command_lines(facts.server))
