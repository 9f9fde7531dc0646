"""No secret value leaks in a whole run: apply, change, scale, failure and deletion.

Every server quotes its requests in each field of its errors. Afterwards the test
searches all readable places: histories and workflow descriptions, logs, outputs of
commands, metrics, files, objects and events of the cluster, processes.
"""

import base64
import json

import pytest

from api_types.messages.entities import RetryNow
from testbed.manifests import secret_name
from tests.secrecy.environment.canaries import Canaries
from tests.secrecy.environment.echo import EchoingHost
from tests.secrecy.environment.plane import (
    CLUSTER,
    NAMESPACE,
    SYSTEM,
    SecretPlane,
    a_secret,
    a_value,
    kubeconfig,
)
from tests.secrecy.environment.search import places
from tests.wire.inputs import raw
from tests.workflows.environment.harness import (
    Json,
    a_cache,
    condition,
    eventually,
    free_port,
)
from tests.workflows.environment.topologies import H100, a_model, an_engine

pytestmark = pytest.mark.testbed

# A value that is no secret. The search must find it in every kind of place.
MODEL = "a-model-that-is-found"
IMAGE = "registry.example/engine:{}"
# The answers of hub and registry to all requests.
ANSWERS = (200, 302, 401, 403, 409, 422, 429, 500)
# Refused requests during a change of a deployment: for the deployment itself, and for
# its copies.
REFUSALS = [
    ("PATCH /deployments/", 409),
    ("PATCH /deployments/", 422),
    ("PUT /secrets/", 403),
    ("PUT /secrets/", 422),
    ("PUT /configmaps/", 500),
]
OBJECTS = ("ic", "md", "mr", "mc", "icl")
OF_THE_SERVER = {
    "history",
    "payloads of the history",
    "description",
    "payloads of the description",
    "worker.log",
    "output of commands",
}
ON_THE_CLUSTER = {
    f"{kind} on the cluster"
    for kind in ("Deployment", "Pod", "Secret", "ConfigMap", "Event")
}


def a_deployment(image: int, replicas: int = 1) -> Json:
    """Return a deployment whose pods read a Secret and a ConfigMap."""
    env = [
        {
            "name": "TOKEN",
            "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}},
        },
        {
            "name": "FLAGS",
            "valueFrom": {"configMapKeyRef": {"name": "flags", "key": "private"}},
        },
    ]
    return a_model(
        MODEL,
        NAMESPACE,
        an_engine("main", H100, env=env, image=IMAGE.format(image)),
        replicas=replicas,
    )


def an_existing(name: str) -> Json:
    """Return a cluster with a kubeconfig of that name."""
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": name},
        "spec": {
            "cluster": {
                "source": "Existing",
                "existing": {"secretRef": {"name": secret_name(name)}},
            },
            "nodePools": [{"name": "h100", "className": "h100-8x", "nodeCount": 1}],
        },
    }


def a_pack(name: str, image: str) -> Json:
    """Return a cache of a pack in a registry with a login."""
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelCache",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "source": "OCI",
            "oci": {
                "image": image,
                "sizeGiB": 20,
                "plainHTTP": True,
                "pullSecret": "login",
            },
        },
    }


def a_login(host: str) -> Json:
    auth = base64.b64encode(f"robot:{a_value('login')}".encode()).decode()
    document = a_secret(
        "login", **{".dockerconfigjson": json.dumps({"auths": {host: {"auth": auth}}})}
    )
    return {**document, "type": "kubernetes.io/dockerconfigjson"}


async def test_a_whole_run_shows_no_secret_anywhere(
    plane: SecretPlane, echo: EchoingHost
) -> None:
    await plane.put(a_login(echo.address))
    await replace_values(plane)
    await deploy(plane)
    await break_clusters(plane)
    await stage_caches(plane, echo)
    await refuse_changes(plane)
    await plane.connect()
    await lose_the_cluster(plane)
    await send_what_cannot_be_read(plane)
    # For most of a minute, the control plane has repeated requests whose answer may
    # change.
    for cache in ("hub-403", "hub-500", "pack-403", "pack-realm"):
        await plane.until(
            "ModelCache", cache, lambda seen: bool(condition(seen, "Ready")), NAMESPACE
        )
    await show_all(plane)
    assert unused(plane, echo) == set()
    await search(plane, {*OF_THE_SERVER, *ON_THE_CLUSTER})
    caches = [f"mc/{place}-{status}" for place in ("hub", "pack") for status in ANSWERS]
    await plane.cli(
        "delete",
        f"md/{MODEL}",
        *caches,
        "mc/pack-realm",
        "-n",
        NAMESPACE,
        "--wait",
        "--timeout",
        "120",
    )
    await plane.cli("delete", "ic/garbled", "ic/closed")
    assert plane.our_objects(CLUSTER, NAMESPACE) == []
    await search(plane, OF_THE_SERVER)


async def replace_values(plane: SecretPlane, rule: str = "") -> None:
    """Change the Secret and the ConfigMap that pods read.

    A document that is refused with another one keeps its values.
    """
    documents = [
        a_secret("hub", token=a_value("hub")),
        a_secret("flags", kind="ConfigMap", private=a_value("flags")),
    ]
    await plane.put(
        *(
            one
            for one in documents
            if {"Secret": "configmaps", "ConfigMap": "secrets"}[one["kind"]] not in rule
        )
    )


async def deploy(plane: SecretPlane) -> None:
    """Apply, roll and scale a deployment, and replace the objects that its pods read."""
    await plane.cli("apply", document=a_deployment(1))
    await plane.ready("ModelDeployment", MODEL, NAMESPACE)
    await replace_values(plane)
    await plane.cli("apply", document=a_deployment(2))
    await copied(plane)
    await plane.cli("scale", f"md/{MODEL}", "--replicas", "2", "-n", NAMESPACE)
    await two_ready(plane)


async def copied(plane: SecretPlane) -> None:
    """Wait until the cluster has received the values for the pods."""

    async def rest() -> set[str]:
        where = {
            where
            for where in plane.canaries.values
            if where.startswith((f"{NAMESPACE}/hub/", f"{NAMESPACE}/flags/"))
        }
        return where - set(plane.canaries.seen_in("\n".join(plane.proxy.written)))

    await eventually(
        rest, lambda left: not left, what=f"copies with {plane.proxy.faults}", within=60
    )


async def two_ready(plane: SecretPlane) -> None:
    await plane.until(
        "ModelDeployment",
        MODEL,
        lambda seen: seen["status"].get("replicas", {}).get("ready") == 2,
        NAMESPACE,
    )


async def break_clusters(plane: SecretPlane) -> None:
    """Connect clusters with unusable credentials."""
    proxy = plane.proxy
    unknown, minted, garbled = a_value("unknown"), a_value("minted"), a_value("garbled")
    proxy.unknown = {unknown: 401, minted: 403}
    plane.canaries.add("minted", minted)
    texts = {
        "garbled": f"users:\n- user:\n    token: !!int {garbled}\n  - token: {garbled}\n",
        "closed": kubeconfig(
            f"https://127.0.0.1:{free_port()}", token=a_value("closed")
        ),
        "unknown": kubeconfig(proxy.address, proxy.authority, token=unknown),
        "minting": kubeconfig(
            proxy.address, proxy.authority, exec=a_plugin(plane, minted)
        ),
    }
    await plane.put(
        *(
            a_secret(secret_name(name), SYSTEM, kubeconfig=text)
            for name, text in texts.items()
        )
    )
    await plane.cli("apply", document=[an_existing(name) for name in texts])
    for name in texts:
        await plane.until(
            "InferenceCluster", name, lambda seen: condition(seen, "Ready") == "False"
        )


def a_plugin(plane: SecretPlane, token: str) -> Json:
    """Return a program that prints a token and records its arguments and environment."""
    credential = plane.keys / "credential.json"
    version = "client.authentication.k8s.io/v1"
    credential.write_text(
        json.dumps(
            {
                "apiVersion": version,
                "kind": "ExecCredential",
                "status": {"token": token},
            }
        )
    )
    log = f"{plane.folder}/plugin.log"
    script = f"(env; tr '\\0' '\\n' </proc/$$/cmdline) >>{log}; cat {credential}"
    return {
        "apiVersion": version,
        "command": "/bin/sh",
        "args": ["-c", script],
        "interactiveMode": "Never",
    }


async def stage_caches(plane: SecretPlane, echo: EchoingHost) -> None:
    """Have the hub and the registry refuse requests with a credential."""
    token = {"name": "hub", "key": "token"}
    caches = [
        a_cache(f"hub-{status}", NAMESPACE, f"acme/s-{status}", authSecret=token)
        for status in ANSWERS
    ]
    caches += [
        a_pack(f"pack-{status}", f"{echo.address}/models/s-{status}:1")
        for status in ANSWERS
    ]
    caches += [a_pack("pack-realm", f"{echo.address}/models/realm:1")]
    await plane.cli("apply", document=caches)
    asked = {
        f"/{place}/s-{status}" for place in ("acme", "models") for status in ANSWERS
    } | {"/models/realm"}

    async def not_asked() -> set[str]:
        return {path for path in asked if not any(path in one for one in echo.paths)}

    await eventually(
        not_asked, lambda paths: not paths, what="all are asked", within=60
    )


async def refuse_changes(plane: SecretPlane) -> None:
    """Have the API server refuse writes, and quote them in the error."""
    for number, (rule, status) in enumerate(REFUSALS):
        plane.proxy.faults = {rule: status}
        plane.proxy.refused.clear()
        await replace_values(plane, rule)
        await plane.cli("apply", document=a_deployment(10 + number, replicas=2))
        await copied(plane)
        await refused(plane)
    plane.proxy.faults = {}
    await replace_values(plane)
    await plane.cli("apply", document=a_deployment(20, replicas=2))
    await copied(plane)
    await two_ready(plane)


async def lose_the_cluster(plane: SecretPlane) -> None:
    """Have the API server refuse everything, and then recover."""
    plane.proxy.faults = {"* /": 500}
    plane.proxy.refused.clear()
    order = RetryNow(request_id="lost", by="test")
    await plane.handle("InferenceCluster", CLUSTER).signal("retry_now", order.wire())
    await refused(plane)
    plane.proxy.faults = {}
    await plane.cli("retry", f"ic/{CLUSTER}")
    await plane.ready("InferenceCluster", CLUSTER)


async def refused(plane: SecretPlane) -> None:
    async def seen() -> list[tuple[int, str]]:
        return list(plane.proxy.refused)

    await eventually(seen, bool, what=str(plane.proxy.faults), within=60)


async def send_what_cannot_be_read(plane: SecretPlane) -> None:
    """Send a deployment a payload that no key decrypts. The deployment survives it."""
    metadata = {"encoding": b"binary/encrypted", "encryption-key-id": b"k1"}
    await plane.handle("ModelDeployment", MODEL, NAMESPACE).signal(
        "retry_now", raw(b"\0" * 64, metadata)
    )
    await two_ready(plane)


async def show_all(plane: SecretPlane) -> None:
    """Run every command, and keep its output."""
    for kind in OBJECTS:
        for form in ("yaml", "json", "wide"):
            await plane.cli("get", kind, "-A", "-o", form)
    clusters = (CLUSTER, "garbled", "closed", "unknown", "minting")
    for target in (
        f"md/{MODEL}",
        *(f"ic/{name}" for name in clusters),
        "mc/pack-realm",
        "mc/pack-403",
        "mc/hub-500",
    ):
        for command in ("describe", "events"):
            await plane.cli(command, target, "-n", NAMESPACE)
    await plane.cli("explain", f"md/{MODEL}", "-n", NAMESPACE)
    await plane.cli("plan", document=a_deployment(1, replicas=3), code=None)
    await plane.cli("render", document=a_deployment(1), code=None)
    # An error about a secret document does not quote its values.
    plane.canaries.add("refused", value := a_value("refused"))
    broken = a_secret("broken", token=value)
    for more in (
        {"data": {"token": value + "%"}},
        {"stringData": {"token": {"nested": value}}},
    ):
        for command in ("apply", "validate"):
            assert "error" in await plane.cli(
                command, document={**broken, **more}, code=2
            )
    assert "temporal.apiKeyFile" in await plane.cli(
        "get",
        "ic",
        code=None,
        MODELPLANE_TEMPORAL__API_KEY_FILE=str(plane.keys / "none"),
    )


def unused(plane: SecretPlane, echo: EchoingHost) -> set[str]:
    """Return the secrets that reached no server, whose absence proves nothing."""
    proxy = plane.proxy
    used = set(
        plane.canaries.seen_in("\n".join([*proxy.tokens, *proxy.written, *echo.sent]))
    )
    # A key is used and never sent. The server saw the certificate instead.
    tokens = {
        value: where
        for where, value in plane.canaries.values.items()
        if where.endswith(" token")
    }
    keys = {
        tokens[header.partition(" ")[2]].removesuffix("token")
        for header in proxy.certified
    }
    used |= {
        where
        for where in plane.canaries.values
        for key in keys
        if where.startswith(f"{key}client-key-data")
    }
    # The errors of commands and of the worker show how they read these files.
    read = (
        "k1",
        "api-key",
        "refused",
        f"{SYSTEM}/{secret_name('garbled')}/",
        f"{SYSTEM}/{secret_name('closed')}/",
    )
    return {
        where
        for where in plane.canaries.values
        if where not in used and not where.startswith(read)
    }


async def search(plane: SecretPlane, kinds: set[str]) -> None:
    """Find no secret anywhere, and find the public value in each kind of place."""
    mark = Canaries({"mark": MODEL})
    leaks: dict[tuple[str, str], list[str]] = {}
    marked = set()
    async for place in places(plane):
        if seen := plane.canaries.seen_in(place.text):
            leaks[place.kind, place.name] = seen
        if mark.seen_in(place.text):
            marked.add(place.kind)
    assert leaks == {}
    assert kinds - marked == set()
