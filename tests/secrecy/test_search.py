"""The search finds a secret in each form in which programs write one."""

import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from temporalio.api.common.v1 import Payload

from api_types.payloads.packing import compact, pack, share
from fleet_client.temporal.codec import EncryptionCodec
from tests.secrecy.environment.canaries import Canaries, decoded, texts_of
from tests.secrecy.environment.plane import a_value, kubeconfig

VALUE = "val" + "0123456789abcdef" * 3
KEY = base64.b64encode(b"\xfb\xff" * 16).decode()


def in_base64(
    before: int, value: str, encode: Callable[[bytes], bytes] = base64.b64encode
) -> str:
    """Encode a value in the middle of other bytes."""
    return encode(b"x" * before + value.encode() + b"yz").decode()


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "cut": lambda value: value[:30],
    "without its beginning": lambda value: value[10:],
    "quoted": lambda value: quote(value, safe=""),
    "JSON in JSON": lambda value: json.dumps(json.dumps(value)),
    "hexadecimal": lambda value: value.encode().hex(),
    **{
        f"base64 after {before} bytes": partial(in_base64, before)
        for before in range(4)
    },
    **{
        f"base64 of addresses after {before} bytes": partial(
            in_base64, before, encode=base64.urlsafe_b64encode
        )
        for before in range(4)
    },
}


# The search looks for a short value as a whole.
CASES = [
    (form, value)
    for form in FORMS
    for value in (VALUE, KEY * 2, KEY)
    if value != KEY or form not in ("cut", "without its beginning")
]


@pytest.mark.parametrize(("form", "value"), CASES)
def test_each_form_is_found(form: str, value: str) -> None:
    canaries = Canaries({"here": value, "elsewhere": a_value("other")})
    assert canaries.seen_in(f"some text, {FORMS[form](value)}, and more") == ["here"]


def test_what_is_no_secret_is_not_found() -> None:
    assert (
        Canaries({"here": VALUE}).seen_in(
            f"{VALUE[:20]} {VALUE.upper()} {a_value('value')}"
        )
        == []
    )


@pytest.mark.parametrize(
    "packed",
    [
        lambda tree: tree,
        lambda tree: {"state": pack(share(tree))},
        lambda tree: compact([tree, "x" * 70_000]),
    ],
)
@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_payload_is_searched(
    packed: Callable[[object], object], encrypted: bool
) -> None:
    codec = EncryptionCodec({"k": b"k" * 32}, "k")
    payload = Payload(
        metadata={"encoding": b"json/plain"},
        data=json.dumps(packed({"message": f"refused: {VALUE}"})).encode(),
    )
    if encrypted:
        (payload,) = await codec.encode([payload])
    metadata = {
        key: base64.b64encode(content).decode()
        for key, content in payload.metadata.items()
    }
    tree = {
        "events": [
            {
                "failure": {
                    "details": {
                        "payloads": [
                            {
                                "metadata": metadata,
                                "data": base64.b64encode(payload.data).decode(),
                            }
                        ]
                    }
                }
            }
        ]
    }
    assert Canaries({"here": VALUE}).seen_in("\n".join(await decoded(tree, codec))) == [
        "here"
    ]


def test_what_is_in_a_store_is_looked_for(tmp_path: Path) -> None:
    token, garbled, password = a_value("token"), a_value("garbled"), a_value("password")
    key = base64.b64encode(
        f"-----BEGIN EC PRIVATE KEY-----\n{'k' * 64}\n-----END EC PRIVATE KEY-----\n".encode()
    ).decode()
    login = base64.b64encode(f"robot:{password}".encode()).decode()
    contents = {
        "kubeconfig": kubeconfig(
            "https://server.example",
            token=token,
            **{"client-certificate-data": "public", "client-key-data": key},
        ),
        "garbled": f"users:\n- user:\n    token: !!int {garbled}\n",
        "login": json.dumps({"auths": {"registry.example": {"auth": login}}}),
        "plain": VALUE,
    }
    (tmp_path / "store" / "namespace" / "name").mkdir(parents=True)
    for name, content in contents.items():
        (tmp_path / "store" / "namespace" / "name" / name).write_text(content)
    canaries = Canaries()
    canaries.add_store(tmp_path / "store")
    assert set(canaries.values.values()) == {
        token,
        garbled,
        key,
        "k" * 64,
        login,
        password,
        VALUE,
    }
    (tmp_path / "log").write_text(f"Bearer {token}")
    assert [
        (file.name, canaries.seen_in(text)[0][-5:])
        for file, text in texts_of(tmp_path, [tmp_path / "store"])
    ] == [("log", "token")]
