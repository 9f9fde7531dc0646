"""Followers of a gang start when their leader can be reached.

A follower whose image is on its node starts while the leader still pulls its image. Most
engines then exit, because the leader's name or port does not exist yet, and the group is
recreated with every exit. An init container of each follower therefore waits. It has no
time limit: only the leader determines how long it takes.
"""

import re
from collections.abc import Iterator

from activities.render.engines.context import Context
from activities.render.engines.spec import WORKER, EngineSpec, MemberSpec
from activities.render.objects import contract
from activities.render.objects.manifest import Json
from activities.render.objects.propagation import pull_secrets
from api_types.engines.flags import command_lines, find_flag

CONTAINER = "wait-for-leader"
_USER = 65532
# Flags with the address of the leader and a port, and flags with the port alone.
_ADDRESS_FLAGS = ("--dist-init-addr", "--nccl-init-addr", "--address")
_PORT_FLAGS = ("--master-port", "--data-parallel-rpc-port", "-dpp")
_LEADER_AND_PORT = re.compile(r"(?:LWS|MODELPLANE)_LEADER_ADDRESS[)}]?:([0-9]{1,5})")

PROGRAM = """
import os, socket, sys, time

host, port = os.environ["LWS_LEADER_ADDRESS"], int(sys.argv[1])
told = ""
while True:
    try:
        socket.getaddrinfo(host, port or None)
        if port:
            socket.create_connection((host, port), timeout=5).close()
        break
    except OSError as error:
        text = f"waiting for the leader {host}, port {port or 'any'}: {error}"
        if text != told:
            print(text, flush=True)
        told = text
        time.sleep(1)
print("the leader responds", flush=True)
"""


def wait_for_leader(
    context: Context, engine: EngineSpec, member: MemberSpec, template: Json
) -> Json:
    """Return a follower's pod template with the container that waits for the leader."""
    if member.role != WORKER:
        return template
    spec = dict(template["spec"])
    container = {
        "name": CONTAINER,
        "image": context.settings.hydration_image,
        "command": ["python3", "-c", PROGRAM, str(leader_port(engine, member))],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {**contract.restricted(), "runAsUser": _USER},
    }
    spec["initContainers"] = [*spec.get("initContainers", ()), container]
    if platform := pull_secrets(context.settings):
        secrets = [*spec.get("imagePullSecrets", ()), *platform]
        unique = dict.fromkeys(secret["name"] for secret in secrets)
        spec["imagePullSecrets"] = [{"name": name} for name in unique]
    return {**template, "spec": spec}


def leader_port(engine: EngineSpec, member: MemberSpec) -> int:
    """Return the port of the leader to which followers connect; 0 if it is unknown."""
    if engine.profile.leader_port is not None:
        return engine.profile.leader_port
    return next(_ports(member), 0)


def _ports(member: MemberSpec) -> Iterator[int]:
    for _, words in command_lines(member):
        for word, following in zip(words, [*words[1:], ""], strict=False):
            name, equals, own = word.partition("=")
            found = _LEADER_AND_PORT.search(own if equals else following)
            if name.replace("_", "-") in _ADDRESS_FLAGS and found:
                yield int(found[1])
    flag = find_flag(member, *_PORT_FLAGS)
    if flag and flag.number:
        yield flag.number
