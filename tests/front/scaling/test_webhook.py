"""Signed requests for a replica count: callers, error messages, and repeats."""

import hmac
import json
import zlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from front.access import signing
from front.access.files import BadAccessFile
from front.access.signing import (
    REQUEST_ID,
    SIGNATURE,
    TIMESTAMP,
    WINDOW_SECONDS,
    Callers,
)
from front.configuration.users import webhook_callers
from front.scaling.routes import BODY_BYTES_MAX
from tests.front.scaling.scaling_under_test import (
    AUDIENCE,
    CALLERS,
    KEY,
    NOW,
    OTHER_KEY,
    TOKEN,
    Client,
    Json,
    ScalingUnderTest,
    asked,
    path_of,
    signature,
)

PATH = path_of("chat", "scale")
BODY = json.dumps({"replicas": 5, "reason": "a long queue"}).encode()


async def sent(
    client: Client,
    body: Any = BODY,
    path: str = PATH,
    method: str = "POST",
    **signing: Any,
) -> tuple[int, Json]:
    """Sign and send a request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = signature(path, data, **{"at": NOW, "method": method, **signing})
    return await asked(client, method, path, data, **headers)


async def test_a_signed_request_sets_the_count_with_user_and_reason(
    served: ScalingUnderTest, client: Client
) -> None:
    status, answer = await sent(client)
    assert (status, answer["kind"], answer["spec"]) == (200, "Scale", {"replicas": 5})
    ((name, signal, message),) = served.plane.sent
    assert (name, signal) == ("chat", "scale")
    assert message.pop("requestId").startswith("webhook-")
    assert message == {"by": "burst", "replicas": 5, "reason": "a long queue"}


async def test_a_repeat_gets_the_same_answer_and_changes_nothing(
    served: ScalingUnderTest, client: Client
) -> None:
    first = await sent(client)
    assert (await sent(client, {"replicas": 7}, request_id="another-request-id"))[1][
        "spec"
    ] == {"replicas": 7}
    assert await sent(client) == first
    # Signed again, and with another key of the same caller.
    served.now += timedelta(seconds=60)
    assert await sent(client, at=served.now, key=OTHER_KEY) == first
    assert [message["replicas"] for _, _, message in served.plane.sent] == [5, 7]
    assert served.plane.objects[("a", "chat")]["spec"] == {"replicas": 7}


async def test_an_id_is_valid_for_one_request(
    served: ScalingUnderTest, client: Client
) -> None:
    await sent(client)
    for more in ({"body": {"replicas": 6}}, {"path": path_of("code", "scale")}):
        status, answer = await sent(client, **more)
        assert (status, answer["reason"]) == (409, "Conflict")
        assert "choose a new one" in answer["message"]
    assert len(served.plane.sent) == 1


async def test_two_fronts_send_a_repeat_with_one_id(tmp_path: Path) -> None:
    ids = set()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        other = ScalingUnderTest(tmp_path / folder)
        async with other.client() as client:
            assert (await sent(client))[0] == 200
        ids |= {message["requestId"] for _, _, message in other.plane.sent}
    assert len(ids) == 1


async def test_a_signature_is_valid_for_one_control_plane(tmp_path: Path) -> None:
    """Also if a caller has the same key at both control planes."""
    async with ScalingUnderTest(
        tmp_path, audience="fleet.example.com"
    ).client() as client:
        assert (await sent(client, audience="fleet.example.com"))[0] == 200
        assert (await sent(client))[0] == 401


async def refused(
    client: Client, path: str, body: bytes, headers: dict[str, str]
) -> str:
    status, answer = await asked(client, "POST", path, body, **headers)
    assert (status, answer["reason"]) == (401, "Unauthorized")
    return str(answer["message"])


async def test_unknown_callers_and_wrong_signatures_get_the_same_error(
    served: ScalingUnderTest, client: Client
) -> None:
    good = signature(PATH, BODY, NOW)
    told = {
        await refused(client, PATH, BODY, signature(PATH, BODY, NOW, caller="nobody")),
        await refused(
            client,
            PATH,
            BODY,
            signature(PATH, BODY, NOW, caller="nobody", key="00" * 32),
        ),
        await refused(client, PATH, BODY, signature(PATH, BODY, NOW, key="77" * 32)),
        await refused(
            client, PATH, BODY, signature(PATH, BODY, NOW, caller="idle", key=OTHER_KEY)
        ),
        await refused(client, PATH, b'{"replicas": 9}', good),
        await refused(client, path_of("code", "scale"), BODY, good),
        await refused(client, path_of("none", "scale"), BODY, good),
        await refused(client, PATH + "?dryRun=All", BODY, good),
        await refused(client, PATH, BODY, signature(PATH, BODY, NOW, method="PUT")),
        await refused(
            client, PATH, BODY, signature(PATH, BODY, NOW, audience="another-front")
        ),
        await refused(client, PATH, BODY, signature(PATH, BODY, NOW, audience="")),
        await refused(
            client, PATH, BODY, {**good, TIMESTAMP: str(int(NOW.timestamp()) + 1)}
        ),
        await refused(client, PATH, BODY, {**good, REQUEST_ID: "another-request-id"}),
    }
    assert told == {"Unauthorized: the caller is unknown or the signature is invalid"}
    assert served.plane.sent == []


async def test_timing_does_not_reveal_callers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, compare = list[str](), hmac.compare_digest

    def noted(ours: str, theirs: str) -> bool:
        compared.append(theirs)
        return compare(ours, theirs)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    for caller in ("steady", "nobody"):
        compared.clear()
        await refused(
            client, PATH, BODY, signature(PATH, BODY, NOW, caller=caller, key="77" * 32)
        )
        assert len(compared) == 1


async def test_request_ids_are_separate_for_each_caller(
    served: ScalingUnderTest, client: Client
) -> None:
    for more in ({}, {"caller": "steady"}, {"request_id": "another-request-id"}):
        assert (await sent(client, **more))[0] == 200
    assert len({message["requestId"] for _, _, message in served.plane.sent}) == 3


def test_the_repr_of_a_caller_hides_its_keys() -> None:
    caller = signing.SigningCaller.model_validate({"name": "burst", "keys": [KEY]})
    assert KEY not in f"{caller!r} {caller}"


@pytest.mark.parametrize("late", [-WINDOW_SECONDS - 1, WINDOW_SECONDS + 1])
async def test_a_request_with_an_old_or_future_timestamp_is_rejected(
    served: ScalingUnderTest, client: Client, late: int
) -> None:
    headers = signature(PATH, BODY, NOW + timedelta(seconds=late))
    assert (
        f"{TIMESTAMP} differs from the current time by more than 300 s"
        in await refused(client, PATH, BODY, headers)
    )
    assert served.plane.sent == []


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("gzip", b"no gzip"), ("deflate", zlib.compress(BODY)), ("Identity, gzip", BODY)],
)
async def test_a_compressed_body_is_rejected_without_decompression(
    served: ScalingUnderTest, client: Client, encoding: str, packed: bytes
) -> None:
    for headers in (signature(PATH, BODY, NOW), signature(PATH, packed, NOW)):
        status, answer = await asked(
            client, "POST", PATH, packed, **headers, **{"Content-Encoding": encoding}
        )
        assert (status, answer["reason"]) == (415, "UnsupportedMediaType")
    assert served.plane.sent == []
    assert (
        await asked(
            client,
            "POST",
            PATH,
            BODY,
            **signature(PATH, BODY, NOW),
            **{"Content-Encoding": "identity"},
        )
    )[0] == 200


async def test_a_dry_run_below_v1_is_rejected(
    served: ScalingUnderTest, client: Client
) -> None:
    status, answer = await sent(client, path=f"{PATH}?dryRun=All")
    assert (status, "nothing was changed" in answer["message"]) == (400, True)
    mine = {"Authorization": f"Bearer {TOKEN}"}
    for path in (path_of("chat", "metrics"), "/v1/events"):
        assert (
            "nothing was changed"
            in (await asked(client, "POST", f"{path}?dryRun=All", b"{}", **mine))[1][
                "message"
            ]
        )
    assert served.plane.sent == []


async def test_all_missing_or_malformed_headers_are_named_at_once(
    client: Client,
) -> None:
    names = "Modelplane-Caller, Modelplane-Timestamp, Modelplane-Request-Id, Modelplane-Signature"
    assert (
        await refused(client, PATH, BODY, {})
        == f"Unauthorized: missing or malformed headers: {names}"
    )
    assert (
        await refused(client, PATH, BODY, {"Authorization": "Bearer token-of-ann"})
        == f"Unauthorized: missing or malformed headers: {names}"
    )
    odd = {**signature(PATH, BODY, NOW), TIMESTAMP: "1e9", SIGNATURE: KEY.upper()}
    assert (
        await refused(client, PATH, BODY, odd)
        == f"Unauthorized: missing or malformed headers: {TIMESTAMP}, {SIGNATURE}"
    )


async def test_the_error_without_rights_does_not_reveal_existence(
    served: ScalingUnderTest, client: Client
) -> None:
    told = set()
    for namespace, name in (("b", "chat"), ("b", "none"), ("c", "none")):
        path = path_of(name, "scale", namespace)
        for body in (BODY, b"[", b'{"replicas": -1}'):
            status, answer = await sent(
                client, body, path, request_id=f"{namespace}-{name}-{len(body):016}"
            )
            told.add(
                (
                    status,
                    answer["message"]
                    .replace(f'"{name}"', "x")
                    .replace(f'"{namespace}"', "y"),
                )
            )
    assert len(told) == 1
    assert next(iter(told))[0] == 403
    assert (await sent(client, caller="idle"))[0] == 403
    assert served.plane.sent == []


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        ({}, {"replicas": "required field is missing"}),
        ({"replicas": -1}, {"replicas": "must be between 0 and 1000, got -1"}),
        ({"replicas": 1001}, {"replicas": "must be between 0 and 1000, got 1001"}),
        ({"replicas": "3"}, {"replicas": "must be an integer"}),
        ({"replicas": 2.5}, {"replicas": "must be an integer"}),
        ({"replicas": 2.0}, {"replicas": "must be an integer"}),
        ({"replicas": True}, {"replicas": "must be an integer"}),
        (
            {"replica": 3},
            {
                "'replica'": "unknown field; use replicas",
                "replicas": "required field is missing",
            },
        ),
        (
            {"replicas": -1, "reason": 7, "x": 1},
            {
                "replicas": "between",
                "reason": "must be a string, got 7",
                "'x'": "unknown field; use replicas or reason",
            },
        ),
        (
            {"replicas": 1, "reason": "x" * 513},
            {"reason": "must have at most 512 bytes, got 513"},
        ),
    ],
    ids=str,
)
async def test_all_errors_of_a_body_are_reported_at_once(
    served: ScalingUnderTest, client: Client, body: Json, causes: Json
) -> None:
    status, answer = await sent(client, body)
    assert (status, answer["reason"]) == (422, "Invalid")
    told = {cause["field"]: cause["message"] for cause in answer["details"]["causes"]}
    assert told.keys() == causes.keys()
    assert all(causes[field] in told[field] for field in causes), told
    assert served.plane.sent == []


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        (b"{", PATH, 400),
        (b"[1]", PATH, 400),
        (BODY, path_of("none", "scale"), 404),
        (BODY, path_of("x" * 300, "scale"), 404),
        (BODY, path_of("x%2Fscale", "scale"), 404),
        (b" " * (BODY_BYTES_MAX + 1), PATH, 413),
    ],
)
async def test_errors_are_a_status(
    client: Client, body: bytes, path: str, code: int
) -> None:
    status, answer = await sent(client, body, path)
    assert (status, answer["kind"], answer["code"]) == (code, "Status", code)


async def test_a_large_body_is_rejected_even_without_a_length(
    client: Client,
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * (BODY_BYTES_MAX // 4)

    headers = {"Content-Type": "application/json", **signature(PATH, b"", NOW)}
    async with client.post(PATH, data=parts(), headers=headers) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (
            413,
            "RequestEntityTooLarge",
        )


async def test_other_methods_are_not_allowed(client: Client) -> None:
    assert (await sent(client, method="PUT"))[0] == 405


async def test_a_rejected_request_can_be_repeated_with_its_id(
    served: ScalingUnderTest, client: Client
) -> None:
    kept = served.plane.objects.pop(("a", "chat"))
    assert (await sent(client))[0] == 404
    served.plane.objects[("a", "chat")] = kept
    assert (await sent(client))[0] == 200


def test_keys_without_an_audience_are_rejected(
    served: ScalingUnderTest,
) -> None:
    file = served.folder / "callers.yaml"
    with pytest.raises(Refused, match=r"front\.webhookAudience"):
        webhook_callers(FrontSettings(webhook_keys=file))
    assert webhook_callers(FrontSettings(webhook_keys=file, webhook_audience=AUDIENCE))
    assert webhook_callers(FrontSettings()) is None
    with pytest.raises(ValueError, match="webhookAudience"):
        FrontSettings.model_validate({"webhookAudience": "a\nb"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"callers: [{{name: a, keys: [{KEY[:-2]}]}}]", "callers.0.keys.0"),
        ("callers: [{name: a, keys: [not-hex]}]", "callers.0.keys.0"),
        ("callers: [{name: a, keys: []}]", "callers.0.keys"),
        (
            f"callers: [{{name: a, key: {KEY}}}]",
            "callers.0.key: Extra inputs are not permitted",
        ),
        (
            f"callers: [{{name: a, keys: [{KEY}]}}, {{name: a, keys: [{OTHER_KEY}]}}]",
            "a name occurs twice",
        ),
    ],
)
def test_an_invalid_file_is_rejected_without_its_keys(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "callers.yaml"
    file.write_text(text)
    with pytest.raises(BadAccessFile) as refusal:
        Callers(file, AUDIENCE)
    assert problem in str(refusal.value)
    assert KEY[:8] not in str(refusal.value)


async def test_a_changed_file_applies_at_once(
    served: ScalingUnderTest, client: Client
) -> None:
    file, beside = served.folder / "callers.yaml", served.folder / "new"
    beside.write_text(CALLERS.replace(f"{KEY}, {OTHER_KEY}", OTHER_KEY))
    beside.replace(file)
    assert (await sent(client))[0] == 401
    assert (await sent(client, key=OTHER_KEY))[0] == 200
