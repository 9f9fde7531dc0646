"""A kubeconfig is input: values are read, everything that reaches further is refused (rulings row 88, spec/stack-and-routing.md 3.5)."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from activities.clients.kubernetes.kubeconfig import parse_kubeconfig
from activities.clients.outward.addresses import refused_address
from api_types.errors import CredentialsInvalid
from api_types.settings import KubeconfigSettings

SUBJECT = "cluster eu-1: Secret modelplane-system/eu-1 key 'kubeconfig'"
TOKEN = "s3cr3t-t0ken-that-must-not-leak"  # noqa: S105
SERVER = "https://api.eu-1.example.com:6443"


def _pair() -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start + timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return base64.b64encode(certificate).decode(), base64.b64encode(private).decode()


CERTIFICATE, KEY = _pair()


def a_kubeconfig(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, *, context: str = "main", users: list[Any] | None = None
) -> str:
    """A kubeconfig that is accepted as it is; `cluster` and `user` add to or change their entries."""
    tree: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [{"name": "main", "context": {"cluster": "eu-1", "user": "admin"}}],
        "clusters": [{"name": "eu-1", "cluster": {"server": SERVER, "certificate-authority-data": CERTIFICATE, **(cluster or {})}}],
        "users": [{"name": "admin", "user": {"token": TOKEN} if user is None else user}] if users is None else users,
    }
    return json.dumps(tree)


class Refused(NamedTuple):
    """A kubeconfig that is refused, and what every problem is called."""

    story: str
    text: str
    says: tuple[str, ...]
    settings: KubeconfigSettings = KubeconfigSettings()


EXEC = {"exec": {"command": "/bin/sh", "args": ["-c", "touch /tmp/pwned"], "apiVersion": "client.authentication.k8s.io/v1"}}
REFUSED = [
    Refused("stk-54 a credential plugin", a_kubeconfig(user=EXEC), ("user.exec would run a program", "kubeconfig.allowExec")),
    Refused("an auth provider", a_kubeconfig(user={"auth-provider": {"name": "gcp"}}), ("user.auth-provider",)),
    Refused(
        "a certificate file",
        a_kubeconfig(user={"client-certificate": "/etc/shadow", "token": TOKEN}),
        ("client-certificate is a file path",),
    ),
    Refused("a key file", a_kubeconfig(user={"client-key": "/root/.ssh/id_rsa", "token": TOKEN}), ("user.client-key is a file path",)),
    Refused("a token file", a_kubeconfig(user={"tokenFile": "/var/run/secrets/token"}), ("user.tokenFile is a file path",)),
    Refused(
        "an authority file", a_kubeconfig({"certificate-authority": "/etc/ssl/ca.pem"}), ("cluster.certificate-authority is a file path",)
    ),
    Refused("no check of the server", a_kubeconfig({"insecure-skip-tls-verify": True}), ("insecure-skip-tls-verify is refused",)),
    Refused("a proxy", a_kubeconfig({"proxy-url": "http://evil:3128"}), ("cluster.proxy-url is refused",)),
    Refused("a password", a_kubeconfig(user={"username": "admin", "password": TOKEN}), ("user.username and user.password",)),
    Refused("stk-55 a loopback address", a_kubeconfig({"server": "https://127.0.0.1:6443"}), ("127.0.0.1 is a loopback address",)),
    Refused("a loopback name", a_kubeconfig({"server": "https://localhost:6443"}), ("localhost is a loopback name",)),
    Refused("loopback in one number", a_kubeconfig({"server": "https://2130706433"}), ("127.0.0.1 is a loopback address",)),
    Refused("loopback in hexadecimal", a_kubeconfig({"server": "https://0x7f.1"}), ("127.0.0.1 is a loopback address",)),
    Refused("loopback in IPv6", a_kubeconfig({"server": "https://[::1]:6443"}), ("::1 is a loopback address",)),
    Refused("loopback mapped into IPv6", a_kubeconfig({"server": "https://[::ffff:127.0.0.1]"}), ("is a loopback address",)),
    Refused("the unspecified address", a_kubeconfig({"server": "https://0.0.0.0:6443"}), ("0.0.0.0 is a loopback address",)),
    Refused("a metadata service", a_kubeconfig({"server": "https://169.254.169.254"}), ("link-local",)),
    Refused(
        "a metadata service, with loopback allowed",
        a_kubeconfig({"server": "https://169.254.169.254"}),
        ("link-local",),
        KubeconfigSettings(allow_loopback=True),
    ),
    Refused("link-local in IPv6", a_kubeconfig({"server": "https://[fe80::1%25eth0]"}), ("link-local",)),
    Refused("plain HTTP", a_kubeconfig({"server": "http://api.example.com"}), ("must begin with https://",)),
    Refused("a password in the URL", a_kubeconfig({"server": f"https://admin:{TOKEN}@api.example.com"}), ("must not hold a user name",)),
    Refused("no server", a_kubeconfig({"server": ""}), ("cluster.server is not set",)),
    Refused("an anonymous user", a_kubeconfig(user={}), ("neither a token nor a client certificate",)),
    Refused("a certificate without its key", a_kubeconfig(user={"client-certificate-data": CERTIFICATE}), ("must be given together",)),
    Refused(
        "a key that is none",
        a_kubeconfig(user={"client-certificate-data": CERTIFICATE, "client-key-data": CERTIFICATE}),
        ("client-key-data holds no",),
    ),
    Refused(
        "an authority that is none",
        a_kubeconfig({"certificate-authority-data": "aGVsbG8="}),
        ("certificate-authority-data holds no certificate",),
    ),
    Refused("data that is not base64", a_kubeconfig({"certificate-authority-data": "%%%"}), ("is not base64",)),
    Refused("no context", a_kubeconfig(context=""), ("current-context is not set",)),
    Refused("a context that does not exist", a_kubeconfig(context="other"), ("contexts has no usable entry named 'other'",)),
    Refused("a token where a name belongs", a_kubeconfig(context=f"main\n- {TOKEN}"), ("it may be a credential",)),
    Refused("a user that does not exist", a_kubeconfig(users=[]), ("users has no usable entry named 'admin'",)),
    Refused("nothing", "", ("is empty",)),
    Refused("a list", "- a", ("is not a kubeconfig",)),
    Refused("no YAML", f"a: [\n{TOKEN}", ("is not YAML (line",)),
    Refused("a token that is no text", a_kubeconfig(user={"token": 7}), ("token must be text",)),
    Refused(
        "everything at once",
        a_kubeconfig(
            {"server": "http://localhost", "proxy-url": "http://evil", "insecure-skip-tls-verify": True}, {**EXEC, "tokenFile": "/x"}
        ),
        ("https://", "loopback name", "proxy-url", "insecure-skip-tls-verify", "user.exec", "tokenFile"),
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.story)
def test_what_is_more_than_values_is_refused_and_no_secret_is_in_the_error(case: Refused) -> None:
    with pytest.raises(CredentialsInvalid) as caught:
        parse_kubeconfig(case.text, case.settings, SUBJECT)
    text = str(caught.value)
    assert text.count(SUBJECT) == 1
    assert [said for said in case.says if said not in text] == []
    assert TOKEN not in text
    assert KEY not in text
    assert CERTIFICATE not in text


def test_values_are_accepted() -> None:
    access = parse_kubeconfig(a_kubeconfig({"tls-server-name": "kubernetes"}), KubeconfigSettings(), SUBJECT)
    assert (access.server, access.token, access.server_name) == (SERVER, TOKEN, "kubernetes")
    assert access.authority.startswith("-----BEGIN CERTIFICATE-----")
    assert TOKEN not in repr(access)


def test_a_client_certificate_is_accepted_and_stays_out_of_the_text_form() -> None:
    user = {"client-certificate-data": CERTIFICATE, "client-key-data": KEY}
    access = parse_kubeconfig(a_kubeconfig(user=user), KubeconfigSettings(), SUBJECT)
    assert access.key.startswith("-----BEGIN PRIVATE KEY-----")
    assert "PRIVATE" not in repr(access)


def test_yaml_is_read_as_yaml() -> None:
    tree = json.loads(a_kubeconfig())
    lists = "".join(f"{group}: {json.dumps(tree[group])}\n" for group in ("contexts", "clusters", "users"))
    text = f"# of the platform team\ncurrent-context: main\n{lists}"
    assert parse_kubeconfig(text, KubeconfigSettings(), SUBJECT).token == TOKEN


def test_an_operator_may_allow_loopback_and_plugins() -> None:
    settings = KubeconfigSettings(allow_loopback=True, allow_exec=True)
    access = parse_kubeconfig(a_kubeconfig({"server": "https://127.0.0.1:6443"}, EXEC), settings, SUBJECT)
    assert access.plugin is not None
    assert access.plugin.args == ("-c", "touch /tmp/pwned")
    provider = {"auth-provider": {"name": "oidc", "config": {"id-token": TOKEN}}}
    assert parse_kubeconfig(a_kubeconfig(user=provider), settings, SUBJECT).token == TOKEN


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("10.0.0.1", False),
        ("203.0.113.7", False),
        ("2001:db8::1", False),
        ("169.254.0.1", True),
        ("::ffff:169.254.169.254", True),
        ("224.0.0.1", True),
    ],
)
def test_a_name_must_not_resolve_to_a_refused_address_either(address: str, *, refused: bool) -> None:
    assert bool(refused_address(address, allow_loopback=True)) is refused
