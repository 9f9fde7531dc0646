"""Strict parsing of the key of a service account, which is untrusted and decides where
a worker calls.
"""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from activities.clouds.gke.clients import CredentialClients
from activities.clouds.gke.credential import TEXT_MAX, read_google_credential
from api_types.errors import CredentialsInvalid

GOOGLE = "https://oauth2.googleapis.com/token"
PEM = "-----BEGIN PRIVATE KEY-----\nCANARYCANARYCANARY\n-----END PRIVATE KEY-----\n"


def a_key(**change: Any) -> str:
    key = {
        "type": "service_account",
        "project_id": "acme-ml",
        "private_key_id": "0a1b",
        "private_key": PEM,
        "client_email": "provisioner@acme-ml.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": GOOGLE,
        **change,
    }
    return json.dumps({name: value for name, value in key.items() if value is not None})


def a_key_for(address: str) -> str:
    """Return a key whose tokens are fetched at this address."""
    return a_key(token_uri=address)


BAD = [
    ("no JSON", "apiVersion: v1", "is not JSON"),
    ("no object", "[]", "is not a JSON object"),
    ("deep", "[" * 5000, "is not JSON"),
    ("long", a_key(client_id="x" * TEXT_MAX), "has more than 16384 characters"),
    (
        "another type",
        a_key(
            type="external_account",
            credential_source={"url": "http://169.254.169.254/"},
        ),
        "audience of the credential is not text",
    ),
    ("a user", a_key(type="authorized_user"), "type of the credential is none of"),
    ("no type", a_key(type=None), "type of the credential is none of"),
    ("no project", a_key(project_id=None), "lacks project_id"),
    ("no key", a_key(private_key=""), "lacks private_key"),
    ("no text", a_key(client_email=["a"]), "fields that are not text: client_email"),
    (
        "another host",
        a_key_for("https://attacker.example/token"),
        "token_uri of the credential is not https://oauth2.googleapis.com",
    ),
    (
        "no TLS",
        a_key_for("http://oauth2.googleapis.com/token"),
        "token_uri of the credential is not",
    ),
    (
        "a port",
        a_key_for("https://oauth2.googleapis.com:8443/token"),
        "token_uri of the credential is not",
    ),
    (
        "a user in the address",
        a_key_for("https://oauth2.googleapis.com@attacker.example/"),
        "token_uri of the credential is not",
    ),
    (
        "a longer host",
        a_key_for("https://oauth2.googleapis.com.attacker.example/"),
        "token_uri of the credential is not",
    ),
    ("no address", a_key_for("https://[/token"), "token_uri of the credential is not"),
    (
        "this machine",
        a_key_for("http://127.0.0.1:8080/token"),
        "token_uri of the credential is not",
    ),
]


@pytest.mark.parametrize(
    ("text", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_a_malformed_key_is_refused_with_a_reason(text: str, words: str) -> None:
    with pytest.raises(CredentialsInvalid) as caught:
        CredentialClients(text)
    assert words in caught.value.message
    assert "CANARY" not in caught.value.message


def test_a_malformed_private_key_is_refused_without_its_text() -> None:
    with pytest.raises(
        CredentialsInvalid, match="private_key of the credential is malformed"
    ) as caught:
        CredentialClients(a_key())
    assert "CANARY" not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_fields_that_could_send_the_worker_elsewhere_are_dropped() -> None:
    key = read_google_credential(
        a_key(
            universe_domain="attacker.example",
            service_account_impersonation_url="https://attacker.example",
            quota_project_id="x",
        )
    )
    assert set(key.info) == {
        "type",
        "project_id",
        "private_key_id",
        "private_key",
        "client_email",
        "client_id",
        "token_uri",
    }


def test_a_key_is_not_printed() -> None:
    assert "CANARY" not in repr(read_google_credential(a_key()))


@pytest.mark.slow
def test_production_clients_use_a_key_and_call_only_google() -> None:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    clients = CredentialClients(
        a_key(private_key=pem, universe_domain="attacker.example")
    )
    assert (clients.project, clients.account) == (
        "acme-ml",
        "provisioner@acme-ml.iam.gserviceaccount.com",
    )
    assert clients.client("container").api_endpoint == "container.googleapis.com"
    assert clients.client("compute.networks").api_endpoint == "compute.googleapis.com"
    assert clients.client("compute.networks") is clients.client("compute.networks")
