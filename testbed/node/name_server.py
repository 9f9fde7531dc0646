"""A DNS server for the names of a cluster's Services, `NAME.NAMESPACE.svc.cluster.local`.

It answers questions for IPv4 addresses over UDP. The only other names are in the hosts
file of the data plane.
"""

import asyncio
import ipaddress
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

PORT = 53
_SUFFIX = ("svc", "cluster", "local")
_A, _IN = 1, 1
_SECONDS = 5
_HEADER = struct.Struct("!HHHHHH")
# Response, authoritative; with the code of an unknown name.
_ANSWER, _UNKNOWN = 0x8400, 0x8403
_RECURSION_DESIRED = 0x0100
_POINTER_TO_NAME = 0xC00C

Resolve = Callable[[str, str], list[str] | None]


class NameServer(asyncio.DatagramProtocol):
    """Answers with `resolve(namespace, name)`, which returns None for unknown names."""

    def __init__(self, resolve: Resolve, hosts: Mapping[str, str]) -> None:
        self._resolve = resolve
        self._hosts = hosts
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of Python 3.11 is no subclass.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._transport and (answer := answer_to(data, self._resolve, self._hosts)):
            self._transport.sendto(answer, addr)


def read_hosts(file: Path) -> dict[str, str]:
    """Return the address of each name in a hosts file."""
    words = (line.split() for line in file.read_text().splitlines())
    return {name: found[0] for found in words for name in found[1:]}


def answer_to(
    question: bytes, resolve: Resolve, hosts: Mapping[str, str]
) -> bytes | None:
    """Return the answer to a message with one question, or None if it has another form."""
    if len(question) < _HEADER.size:
        return None
    number, flags, questions, *_ = _HEADER.unpack_from(question)
    labels: list[str] = []
    at = _HEADER.size
    while at < len(question) and question[at]:
        length = question[at]
        labels.append(question[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    if questions != 1 or at + 5 > len(question):
        return None
    kind, family = struct.unpack_from("!HH", question, at + 1)
    lowered = [label.lower() for label in labels]
    found = None
    if len(lowered) == len(_SUFFIX) + 2 and tuple(lowered[2:]) == _SUFFIX:
        found = resolve(lowered[1], lowered[0])
    elif (host := ".".join(lowered)) in hosts:
        found = [hosts[host]]
    records = b"".join(
        struct.pack("!HHHIH", _POINTER_TO_NAME, _A, _IN, _SECONDS, 4)
        + ipaddress.IPv4Address(address).packed
        for address in found or ()
        if (kind, family) == (_A, _IN)
    )
    code = (_UNKNOWN if found is None else _ANSWER) | (flags & _RECURSION_DESIRED)
    header = _HEADER.pack(number, code, 1, len(records) // 16, 0, 0)
    return header + question[_HEADER.size : at + 5] + records


async def serve(address: str, resolve: Resolve, hosts: Mapping[str, str]) -> None:
    """Serve until cancelled."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: NameServer(resolve, hosts), local_addr=(address, PORT)
    )
    try:
        await asyncio.Event().wait()
    finally:
        transport.close()
