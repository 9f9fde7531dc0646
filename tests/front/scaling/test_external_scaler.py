"""The external scaler with a gRPC client: metrics, targets, streams, certificates."""

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from front.access import certificates
from front.access.access import AccessControl
from front.access.access_file import AUTHENTICATED, User
from front.configuration.scaling import scaler_credentials
from front.scaling import external_scaler
from front.scaling import scaler_messages as messages
from front.scaling.external_scaler import ExternalScaler, Trigger
from front.scaling.numbers import Numbers
from front.serving import errors
from front.store.projection import ObjectKey
from testbed.cluster.pki import Authority
from tests.front.scaling.keda import Keda, a_scaler
from tests.front.scaling.scaling_under_test import AGE_MAX, NOW, ScalingUnderTest
from tests.workflows.environment.harness import eventually

CHAT = ObjectKey("ModelDeployment", "a", "chat")
TRIGGER = {"metric": "queueDepth", "targetValue": "4.5", "scalerAddress": "front:9443"}
CLIENTS = {"keda": ("keda", None), "other": ("other", "team-b")}
# A ScaledObjectRef as encoded by KEDA: name "chat", namespace "a", one metadata entry.
WRITTEN_BY_KEDA = b"\n\x04chat\x12\x01a\x1a\x10\n\x0btargetValue\x12\x012"


def reference(name: str = "chat", namespace: str = "a", **metadata: str) -> Any:
    return messages.ScaledObjectRef(
        name=name, namespace=namespace, scalerMetadata={**TRIGGER, **metadata}
    )


@pytest.fixture
async def keda(served: ScalingUnderTest) -> AsyncIterator[Keda]:
    """A scaler of a front without an access file."""
    served.front.authorization.access = AccessControl()
    async with a_scaler(served) as keda:
        yield keda


def tell(served: ScalingUnderTest, **values: float) -> None:
    served.told.tell(CHAT, Numbers("chat", served.now, values))


async def test_keda_gets_the_metric_and_the_target_per_replica(
    served: ScalingUnderTest, keda: Keda
) -> None:
    tell(served, queueDepth=12.5, runningRequests=3)
    value = await keda.metric(reference())
    assert (value.metricName, value.metricValue, value.metricValueFloat) == (
        "queueDepth",
        13,
        12.5,
    )
    assert (
        await keda.metric(reference(metric="runningRequests"), "runningRequests")
    ).metricValueFloat == 3
    (spec,) = (
        await keda.ask("GetMetricSpec", reference(), messages.GetMetricSpecResponse)
    ).metricSpecs
    assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (
        "queueDepth",
        round(4.5),
        4.5,
    )
    assert (
        await keda.metric(reference(name="scaled-chat", deployment="chat"))
    ).metricValueFloat == 12.5


async def test_messages_encoded_by_keda_are_decoded(
    served: ScalingUnderTest, keda: Keda
) -> None:
    read = messages.ScaledObjectRef.FromString(WRITTEN_BY_KEDA)
    assert (read.name, read.namespace, dict(read.scalerMetadata)) == (
        "chat",
        "a",
        {"targetValue": "2"},
    )
    tell(served, queueDepth=1)
    assert (
        await keda.ask("IsActive", WRITTEN_BY_KEDA, messages.IsActiveResponse)
    ).SerializeToString() == b"\x08\x01"


@pytest.mark.parametrize(
    ("values", "activation", "active"),
    [
        ({"queueDepth": 0}, "", False),
        ({"queueDepth": 0.1}, "", True),
        ({"queueDepth": 5}, "5", False),
        ({"queueDepth": 6}, "5", True),
        ({"queueDepth": 0, "runningRequests": 1}, "5", True),
        ({"queueDepth": 0, "runningRequests": 0}, "", False),
    ],
)
async def test_a_deployment_is_active_while_requests_wait_or_run(
    served: ScalingUnderTest,
    keda: Keda,
    values: dict[str, float],
    activation: str,
    active: bool,
) -> None:
    tell(served, **values)
    assert await keda.is_active(reference(activationValue=activation)) is active


async def test_unknown_or_expired_metrics_are_an_error_instead_of_zero(
    served: ScalingUnderTest, keda: Keda
) -> None:
    assert (await keda.refusal(reference()))[0] is grpc.StatusCode.UNAVAILABLE
    tell(served, runningRequests=0)
    code, why = await keda.refusal(reference())
    assert (code, why) == (
        grpc.StatusCode.UNAVAILABLE,
        "queueDepth of ModelDeployment a/chat is unknown; send it with the other metrics",
    )
    tell(served, queueDepth=0)
    assert not await keda.is_active(reference())
    served.now += 2 * AGE_MAX
    assert (await keda.refusal(reference()))[0] is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.aio.AioRpcError, match="older than 120 s"):
        await keda.metric(reference())
    assert (await keda.refusal(reference(name="none")))[0] is grpc.StatusCode.NOT_FOUND


async def test_no_deployment_is_reported_as_missing_before_the_first_listing(
    served: ScalingUnderTest, keda: Keda
) -> None:
    served.projection.complete = False
    assert (await keda.refusal(reference(name="none")))[
        0
    ] is grpc.StatusCode.UNAVAILABLE


@pytest.mark.slow
async def test_a_stream_sends_changes_and_nothing_while_metrics_are_unknown(
    served: ScalingUnderTest, keda: Keda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_scaler, "CHECK_SECONDS", 0.05)
    looks, look = list[bool | None](), ExternalScaler._active_if_known

    def noted(scaler: ExternalScaler, trigger: Trigger) -> bool | None:
        looks.append(look(scaler, trigger))
        return looks[-1]

    async def counted() -> int:
        return len(looks)

    monkeypatch.setattr(ExternalScaler, "_active_if_known", noted)
    stream = keda.stream(reference())
    first = asyncio.ensure_future(stream.read())
    tell(served, queueDepth=0)
    assert not (await first).result
    # An unchanged state is not sent again.
    looks.clear()
    await eventually(counted, lambda count: count > 3, what="more looks")
    served.now += 2 * AGE_MAX
    tell(served, queueDepth=7)
    assert (await stream.read()).result
    served.projection.remove(CHAT, 5000)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await stream.read()
    assert ended.value.code() is grpc.StatusCode.NOT_FOUND
    assert served.told._waiting == {}


async def test_a_stream_repeats_an_activation_until_replicas_are_wanted(
    served: ScalingUnderTest, keda: Keda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_scaler, "CHECK_SECONDS", 0.05)

    def want(replicas: int, version: int) -> None:
        tree = served.plane.objects["a", "chat"]
        served.projection.put(
            CHAT,
            {
                **tree,
                "metadata": {**tree["metadata"], "resourceVersion": str(version)},
                "spec": {**tree["spec"], "replicas": replicas},
            },
        )

    want(0, 5000)
    tell(served, queueDepth=7)
    stream = keda.stream(reference())
    assert [(await stream.read()).result for _ in range(3)] == [True] * 3
    want(1, 5001)
    tell(served, queueDepth=0)
    while (await stream.read()).result:
        pass
    # The last replica is removed, and nothing is repeated without a need for replicas.
    want(0, 5002)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.read(), 0.5)


@pytest.mark.parametrize(
    ("metadata", "fields"),
    [
        ({"targetValue": ""}, {"targetValue: required metadata is missing"}),
        ({"targetValue": "0"}, {"targetValue: must be more than 0"}),
        ({"targetValue": "nan"}, {"targetValue: must be a number"}),
        ({"targetValue": "1_0"}, {"targetValue: must be a number"}),
        (
            {"targetValue": "-1", "metric": "latency", "activationValue": "x"},
            {"metric: must be", "targetValue:", "activationValue:"},
        ),
        (
            {"deployment": "chat/scale"},
            {"deployment: must be the name of a ModelDeployment"},
        ),
    ],
    ids=lambda value: "-".join(sorted(value)),
)
async def test_all_errors_of_a_trigger_are_reported_at_once(
    keda: Keda, metadata: dict[str, str], fields: set[str]
) -> None:
    for method in ("IsActive", "GetMetricSpec"):
        code, why = await keda.refusal(reference(**metadata), method)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert all(field in why for field in fields), why


async def test_a_metric_other_than_the_triggers_is_rejected(
    served: ScalingUnderTest, keda: Keda
) -> None:
    tell(served, queueDepth=1)
    assert not math.isnan((await keda.metric(reference(), "")).metricValueFloat)
    with pytest.raises(
        grpc.aio.AioRpcError, match="must be queueDepth, the metric of the trigger"
    ):
        await keda.metric(reference(), "runningRequests")


async def test_an_internal_error_reveals_no_details(
    served: ScalingUnderTest, keda: Keda, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(served, queueDepth=1)

    def fails(*_: Any) -> None:
        raise RuntimeError("an inner detail")

    monkeypatch.setattr(external_scaler, "read_trigger", fails)
    code, why = await keda.refusal(reference())
    assert (code, why) == (
        grpc.StatusCode.INTERNAL,
        "internal error; the log of the server has the details",
    )


# Certificates


@pytest.fixture
def settings(served: ScalingUnderTest) -> FrontSettings:
    pki = Authority(served.folder / "pki", CLIENTS)
    pki.ensure()
    pair = pki.pair("apiserver")
    return FrontSettings(
        access_file=served.folder / "access.yaml",
        tls_cert=pair.certificate,
        tls_key=pair.key,
        scaler_listen="127.0.0.1:0",
        scaler_client_ca=pki.ca,
    )


async def test_a_certificate_has_the_rights_of_its_name(
    served: ScalingUnderTest, settings: FrontSettings
) -> None:
    tell(served, queueDepth=1)
    async with a_scaler(served, settings) as keda:
        assert await keda.is_active(reference())
        told = {await keda.refusal(reference(name, "b")) for name in ("chat", "none")}
    alike = {
        (code, why.replace('"chat"', "x").replace('"none"', "x")) for code, why in told
    }
    ((code, why),) = alike
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert 'User "keda" cannot get resource "modeldeployments/metrics"' in why


def test_organizations_are_groups_and_invalid_certificates_have_no_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(certificates, "utc_now", lambda: NOW)

    def certified(
        *names: tuple[x509.ObjectIdentifier, str], lifetime: timedelta = AGE_MAX
    ) -> dict[str, list[bytes]]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(oid, value) for oid, value in names])
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
        )
        signed = (
            made.not_valid_before(NOW - AGE_MAX)
            .not_valid_after(NOW + lifetime)
            .sign(key, hashes.SHA256())
        )
        return {"x509_pem_cert": [signed.public_bytes(serialization.Encoding.PEM)]}

    user, groups = (
        (NameOID.COMMON_NAME, "keda"),
        [(NameOID.ORGANIZATION_NAME, each) for each in ("scalers", "more")],
    )
    assert external_scaler._user_of(certified(user, *groups)) == User(
        "keda", ("scalers", "more", AUTHENTICATED)
    )
    expired = certified(user, lifetime=timedelta(0))
    for odd in (
        certified(*groups),
        certified(user, user),
        expired,
        {},
        {"x509_pem_cert": [b"none"]},
    ):
        with pytest.raises(errors.RejectedRequest) as refusal:
            external_scaler._user_of(odd)
        assert refusal.value.code == 401


@pytest.mark.parametrize(
    ("client", "code"),
    [
        ("other", grpc.StatusCode.PERMISSION_DENIED),
        ("", grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_other_and_missing_certificates_are_rejected(
    served: ScalingUnderTest, settings: FrontSettings, client: str, code: Any
) -> None:
    tell(served, queueDepth=1)
    async with a_scaler(served, settings, client) as keda:
        assert (await keda.refusal(reference()))[0] is code


async def test_a_stream_ends_when_its_user_loses_the_right(
    served: ScalingUnderTest, settings: FrontSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_scaler, "CHECK_SECONDS", 0.05)
    tell(served, queueDepth=1)
    async with a_scaler(served, settings) as keda:
        stream = keda.stream(reference())
        assert (await stream.read()).result
        beside = served.folder / "new"
        beside.write_text("{}")
        beside.replace(served.folder / "access.yaml")
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert ended.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"scaler_client_ca": None}, "needs front.scalerClientCa"),
        (
            {"tls_cert": None, "tls_key": None},
            "needs front.scalerClientCa and front.tlsCert",
        ),
        (
            {"access_file": None, "scaler_listen": "0.0.0.0:9443"},
            "front.accessFile is not set",
        ),
        ({"scaler_client_ca": Path("/none/ca.crt")}, "No such file"),
    ],
    ids=str,
)
def test_insecure_settings_are_rejected(
    settings: FrontSettings, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(Refused, match=why):
        scaler_credentials(settings.model_copy(update=more))


def test_a_file_without_certificates_is_rejected(settings: FrontSettings) -> None:
    assert settings.scaler_client_ca
    settings.scaler_client_ca.write_text("no certificate")
    with pytest.raises(Refused, match=r"front\.scalerClientCa"):
        scaler_credentials(settings)
    assert scaler_credentials(settings.model_copy(update={"scaler_listen": ""})) is None
