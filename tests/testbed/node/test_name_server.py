"""The answers to DNS questions, compared with messages of the standard's form."""

import struct
from pathlib import Path

import pytest

from testbed.node.name_server import answer_to, read_hosts

NUMBER = 0x1234
A, AAAA = 1, 28
HOSTS = {"provider.testbed.example": "10.245.255.254"}
SERVICES = {("ml-team", "picker"): ["10.96.0.9"], ("ml-team", "none"): []}


def question(name: str, kind: int = A) -> bytes:
    """Return a message with one question, as resolvers send it."""
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    header = struct.pack("!HHHHHH", NUMBER, 0x0100, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!HH", kind, 1)


def resolve(namespace: str, name: str) -> list[str] | None:
    return SERVICES.get((namespace, name))


@pytest.mark.parametrize(
    ("name", "kind", "code", "addresses"),
    [
        ("picker.ml-team.svc.cluster.local", A, 0, [bytes([10, 96, 0, 9])]),
        ("Picker.ML-team.svc.cluster.local", A, 0, [bytes([10, 96, 0, 9])]),
        ("picker.ml-team.svc.cluster.local", AAAA, 0, []),
        ("none.ml-team.svc.cluster.local", A, 0, []),
        ("other.ml-team.svc.cluster.local", A, 3, []),
        ("example.com", A, 3, []),
        ("Provider.testbed.example", A, 0, [bytes([10, 245, 255, 254])]),
        ("provider.testbed.example", AAAA, 0, []),
    ],
)
def test_it_answers_for_services_and_hosts(
    name: str, kind: int, code: int, addresses: list[bytes]
) -> None:
    asked = question(name, kind)
    answer = answer_to(asked, resolve, HOSTS)
    assert answer
    number, flags, questions, count, *_ = struct.unpack_from("!HHHHHH", answer)
    records = answer[len(asked) :]
    found = [records[at + 12 : at + 16] for at in range(0, len(records), 16)]
    assert (number, flags & 0x800F, questions, count, found) == (
        NUMBER,
        0x8000 | code,
        1,
        len(addresses),
        addresses,
    )


@pytest.mark.parametrize("message", [b"", b"short", question("a")[:-3]])
def test_it_ignores_other_messages(message: bytes) -> None:
    assert answer_to(message, resolve, HOSTS) is None


def test_a_hosts_file_may_name_an_address_several_times(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("127.0.0.1 localhost\n10.0.0.1 a.example b.example\n\n")
    assert read_hosts(file) == {
        "localhost": "127.0.0.1",
        "a.example": "10.0.0.1",
        "b.example": "10.0.0.1",
    }
