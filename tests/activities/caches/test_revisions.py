"""Resolve references to commits and digests at a hub and registries on loopback."""

from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.caches.revisions import RevisionActivities, RevisionSource
from activities.clients.hubs.huggingface import HuggingFaceHub
from activities.clients.hubs.oci import OciRegistry
from activities.clients.secrets.directory import SecretDirectory
from activities.render.cache.artifact import SOURCE_HUGGINGFACE, SOURCE_OCI
from activities.secrets.store import StoredSecret
from api_types.errors import CredentialsInvalid, InvalidInput, ServerError, Throttled
from api_types.messages.caches import ResolveRevision
from tests.activities.environment.asking import asked_by
from tests.environment.local_hub import LocalHub, Repo, a_commit, local_hub
from tests.environment.local_registry import LocalRegistry, local_registry

DIGEST = "sha256:" + "ab" * 32
TOKEN = "hf_" + "verysecret"


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as hub:
        hub.repos = {
            "acme/tiny": Repo(branches={"main": a_commit("m"), "v1": a_commit("v")}),
            "acme/private": Repo(token=TOKEN),
        }
        yield hub


@pytest.fixture
def registry() -> Iterator[LocalRegistry]:
    with local_registry() as registry:
        yield registry


@pytest.fixture
def store(tmp_path: Path) -> SecretDirectory:
    return SecretDirectory(tmp_path)


async def resolved(
    store: SecretDirectory, spec: dict[str, Any], hub: LocalHub | None = None
) -> str:
    sources: dict[str, RevisionSource] = {
        SOURCE_HUGGINGFACE: HuggingFaceHub(hub.address if hub else ""),
        SOURCE_OCI: OciRegistry((ip_network("127.0.0.0/8"),), allow_plain_http=True),
    }
    answer = await asked_by("modelcache/ml-team/qwen").run(
        RevisionActivities(store, sources).resolve_revision,
        ResolveRevision(namespace="ml-team", name="qwen", spec=spec),
    )
    return answer.revision


def of_hub(repo: str, **block: Any) -> dict[str, Any]:
    return {
        "source": "HuggingFace",
        "huggingFace": {"repo": repo, "sizeGiB": 20, **block},
    }


def of_registry(image: str, **block: Any) -> dict[str, Any]:
    return {
        "source": "OCI",
        "oci": {"image": image, "sizeGiB": 20, "plainHTTP": True, **block},
    }


@pytest.mark.parametrize(
    ("revision", "commit"),
    [
        pytest.param({}, a_commit("m"), id="the default branch"),
        pytest.param({"revision": "v1"}, a_commit("v"), id="a tag"),
        pytest.param({"revision": a_commit("v")}, a_commit("v"), id="a commit"),
    ],
)
async def test_a_reference_of_the_hub_resolves_to_a_commit(
    store: SecretDirectory, hub: LocalHub, revision: dict[str, str], commit: str
) -> None:
    assert await resolved(store, of_hub("acme/tiny", **revision), hub) == commit


async def test_a_commit_is_used_without_a_request(
    store: SecretDirectory, hub: LocalHub
) -> None:
    assert await resolved(
        store, of_hub("acme/none", revision=a_commit("x")), hub
    ) == a_commit("x")
    assert hub.requests == []


async def test_a_private_repository_is_read_with_the_token_of_the_store(
    store: SecretDirectory, hub: LocalHub
) -> None:
    spec = of_hub("acme/private", authSecret={"name": "hub", "key": "pat"})
    with pytest.raises(
        CredentialsInvalid, match="requires a credential for acme/private"
    ):
        await resolved(store, spec, hub)
    await store.put(StoredSecret("ml-team", "hub", {"pat": b"hf_wrong"}))
    with pytest.raises(
        CredentialsInvalid, match="refused the credential for acme/private"
    ):
        await resolved(store, spec, hub)
    await store.put(StoredSecret("ml-team", "hub", {"pat": TOKEN.encode()}))
    assert await resolved(store, spec, hub) == a_commit("first")


async def raised(
    store: SecretDirectory, spec: dict[str, Any], hub: LocalHub | None = None
) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await resolved(store, spec, hub)
    assert TOKEN not in str(caught.value)
    return caught.value


async def test_a_missing_revision_is_distinguished_from_a_transient_error(
    store: SecretDirectory, hub: LocalHub
) -> None:
    assert isinstance(
        await raised(store, of_hub("acme/tiny", revision="v9"), hub), InvalidInput
    )
    hub.error_status = 429
    assert isinstance(await raised(store, of_hub("acme/tiny"), hub), Throttled)
    hub.error_status = 503
    assert isinstance(await raised(store, of_hub("acme/tiny"), hub), ServerError)
    hub.address = "http://127.0.0.1:9"
    unreachable = await raised(store, of_hub("acme/tiny"), hub)
    assert isinstance(unreachable, ServerError)
    assert "no usable answer from 127.0.0.1:9" in unreachable.message


async def test_a_tag_resolves_to_the_digest_of_its_manifest(
    store: SecretDirectory, registry: LocalRegistry
) -> None:
    digest = registry.push("models/qwen:1.0", {"model.bin": b"w"})
    registry.tags["models/qwen:latest"] = digest
    for image in (f"{registry.host}/models/qwen:1.0", f"{registry.host}/models/qwen"):
        assert await resolved(store, of_registry(image)) == digest
    assert (
        await resolved(store, of_registry(f"{registry.host}/models/none@{DIGEST}"))
        == DIGEST
    )


async def test_a_registry_with_authentication_returns_a_token_for_the_pull_secret(
    store: SecretDirectory,
) -> None:
    with local_registry("s3cret") as protected:
        digest = protected.push("models/qwen:1.0", {"model.bin": b"w"})
        spec = of_registry(f"{protected.host}/models/qwen:1.0", pullSecret="registry")
        assert isinstance(await raised(store, spec), CredentialsInvalid)
        config = StoredSecret(
            "ml-team",
            "registry",
            {".dockerconfigjson": protected.docker_config.encode()},
        )
        await store.put(config)
        assert await resolved(store, spec) == digest
        in_the_clear = await raised(
            store,
            of_registry(
                f"{protected.host}/models/qwen:1.0",
                pullSecret="registry",
                plainHTTP=False,
            ),
        )
        assert isinstance(in_the_clear, ServerError)


@pytest.mark.parametrize(
    "text", ["no json", '{"auths": {"%s": {"auth": "***"}}}', '{"auths": ["x"]}']
)
async def test_an_invalid_pull_secret_is_named_without_its_content(
    store: SecretDirectory, registry: LocalRegistry, text: str
) -> None:
    content = text.replace("%s", registry.host)
    await store.put(
        StoredSecret("ml-team", "registry", {".dockerconfigjson": content.encode()})
    )
    error = await raised(
        store, of_registry(f"{registry.host}/models/qwen:1.0", pullSecret="registry")
    )
    assert isinstance(error, CredentialsInvalid)
    assert content not in str(error)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (of_registry("qwen"), "names no registry; write the full reference"),
        (of_registry("models/qwen:1.0"), "names no registry"),
        (of_registry("registry.acme.example/qwen@sha256:12"), "its digest must be"),
        (
            {"source": "HuggingFace", "huggingFace": {"repo": "a/b;c", "sizeGiB": 1}},
            "repo must be",
        ),
    ],
)
async def test_an_invalid_reference_is_refused(
    store: SecretDirectory, spec: dict[str, Any], problem: str
) -> None:
    error = await raised(store, spec)
    assert isinstance(error, InvalidInput)
    assert problem in error.message


async def test_a_registry_with_a_digest_of_other_content_is_an_error(
    store: SecretDirectory, registry: LocalRegistry
) -> None:
    digest = registry.push("models/qwen:1.0", {"model.bin": b"w"})
    registry.content[digest] = b"{}"
    error = await raised(store, of_registry(f"{registry.host}/models/qwen:1.0"))
    assert isinstance(error, ServerError)
    assert "but the content has" in error.message
