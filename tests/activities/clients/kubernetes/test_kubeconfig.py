"""A kubeconfig is input: values are read, and everything else is refused."""

import asyncio
import base64
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from activities.clients.kubernetes.kubeconfig import parse_kubeconfig
from activities.clients.kubernetes.pool import KubernetesPool
from activities.clients.outward.addresses import api_server_rules
from activities.clients.secrets.directory import SecretDirectory
from activities.secrets.store import StoredSecret
from api_types.errors import CredentialsInvalid
from api_types.messages.cluster_work import Connection
from api_types.sections.clusters import KubeconfigSettings

SUBJECT = "cluster eu-1: Secret modelplane-system/eu-1 key 'kubeconfig'"
TOKEN = "s3cr3t-t0ken-that-must-not-leak"  # noqa: S105
SERVER = "https://api.eu-1.example.com:6443"


def _pair() -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
    )
    builder = (
        builder.serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=1))
    )
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return base64.b64encode(certificate).decode(), base64.b64encode(private).decode()


CERTIFICATE, KEY = _pair()


def a_kubeconfig(
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    *,
    context: Any = "main",
    users: list[Any] | None = None,
) -> str:
    """Return a kubeconfig that is accepted.

    `cluster` and `user` add to or change their entries.
    """
    tree: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [{"name": "main", "context": {"cluster": "eu-1", "user": "admin"}}],
        "clusters": [
            {
                "name": "eu-1",
                "cluster": {
                    "server": SERVER,
                    "certificate-authority-data": CERTIFICATE,
                    **(cluster or {}),
                },
            }
        ],
        "users": [{"name": "admin", "user": {"token": TOKEN} if user is None else user}]
        if users is None
        else users,
    }
    return json.dumps(tree)


RANDOM = "b7e6c1d09f3a4c5e8d7b6a5f4e3d2c1b"
BOMB = "\n".join(
    f"a{level}: &a{level} [*a{level - 1}, *a{level - 1}]" for level in range(1, 41)
)
ALLOWED = KubeconfigSettings(allow_exec=True)


class Refused(NamedTuple):
    """A refused kubeconfig, and the name of every problem."""

    story: str
    text: str
    says: tuple[str, ...]
    settings: KubeconfigSettings = KubeconfigSettings()


EXEC = {
    "exec": {
        "command": "/bin/sh",
        "args": ["-c", "touch /tmp/pwned"],
        "apiVersion": "client.authentication.k8s.io/v1",
    }
}
REFUSED = [
    Refused(
        "a credential plugin",
        a_kubeconfig(user=EXEC),
        ("user.exec would run a program", "kubeconfig.allowExec"),
    ),
    Refused(
        "an auth provider",
        a_kubeconfig(user={"auth-provider": {"name": "gcp"}}),
        ("user.auth-provider",),
    ),
    Refused(
        "a certificate file",
        a_kubeconfig(user={"client-certificate": "/etc/shadow", "token": TOKEN}),
        ("client-certificate is a file path",),
    ),
    Refused(
        "a key file",
        a_kubeconfig(user={"client-key": "/root/.ssh/id_rsa", "token": TOKEN}),
        ("user.client-key is a file path",),
    ),
    Refused(
        "a token file",
        a_kubeconfig(user={"tokenFile": "/var/run/secrets/token"}),
        ("user.tokenFile is a file path",),
    ),
    Refused(
        "an authority file",
        a_kubeconfig({"certificate-authority": "/etc/ssl/ca.pem"}),
        ("cluster.certificate-authority is a file path",),
    ),
    Refused(
        "no check of the server",
        a_kubeconfig({"insecure-skip-tls-verify": True}),
        ("insecure-skip-tls-verify is refused",),
    ),
    Refused(
        "a proxy",
        a_kubeconfig({"proxy-url": "http://evil:3128"}),
        ("cluster.proxy-url is refused",),
    ),
    Refused(
        "a password",
        a_kubeconfig(user={"username": "admin", "password": TOKEN}),
        ("user.username and user.password",),
    ),
    Refused(
        "a loopback address",
        a_kubeconfig({"server": "https://127.0.0.1:6443"}),
        ("127.0.0.1 is a loopback address",),
    ),
    Refused(
        "a loopback name",
        a_kubeconfig({"server": "https://localhost:6443"}),
        ("localhost is a loopback name",),
    ),
    Refused(
        "loopback in one number",
        a_kubeconfig({"server": "https://2130706433"}),
        ("127.0.0.1 is a loopback address",),
    ),
    Refused(
        "loopback in hexadecimal",
        a_kubeconfig({"server": "https://0x7f.1"}),
        ("127.0.0.1 is a loopback address",),
    ),
    Refused(
        "loopback in IPv6",
        a_kubeconfig({"server": "https://[::1]:6443"}),
        ("::1 is a loopback address",),
    ),
    Refused(
        "loopback mapped into IPv6",
        a_kubeconfig({"server": "https://[::ffff:127.0.0.1]"}),
        ("is a loopback address",),
    ),
    Refused(
        "the unspecified address",
        a_kubeconfig({"server": "https://0.0.0.0:6443"}),
        ("0.0.0.0 is a loopback address",),
    ),
    Refused(
        "a metadata service",
        a_kubeconfig({"server": "https://169.254.169.254"}),
        ("link-local",),
    ),
    Refused(
        "a metadata service, with loopback allowed",
        a_kubeconfig({"server": "https://169.254.169.254"}),
        ("link-local",),
        KubeconfigSettings(allow_loopback=True),
    ),
    Refused(
        "link-local in IPv6",
        a_kubeconfig({"server": "https://[fe80::1%25eth0]"}),
        ("link-local",),
    ),
    Refused(
        "plain HTTP",
        a_kubeconfig({"server": "http://api.example.com"}),
        ("must begin with https://",),
    ),
    Refused(
        "a password in the URL",
        a_kubeconfig({"server": f"https://admin:{TOKEN}@api.example.com"}),
        ("must not hold a user name",),
    ),
    Refused("no server", a_kubeconfig({"server": ""}), ("cluster.server is not set",)),
    Refused(
        "a query",
        a_kubeconfig({"server": f"{SERVER}?dryRun=All"}),
        ("cluster.server must have neither query nor fragment",),
    ),
    Refused(
        "a fragment",
        a_kubeconfig({"server": f"{SERVER}#part"}),
        ("cluster.server must have neither query nor fragment",),
    ),
    Refused(
        "an anonymous user",
        a_kubeconfig(user={}),
        ("neither a token nor a client certificate",),
    ),
    Refused(
        "a certificate without its key",
        a_kubeconfig(user={"client-certificate-data": CERTIFICATE}),
        ("must be given together",),
    ),
    Refused(
        "a key that is none",
        a_kubeconfig(
            user={
                "client-certificate-data": CERTIFICATE,
                "client-key-data": CERTIFICATE,
            }
        ),
        ("client-key-data holds no",),
    ),
    Refused(
        "an authority that is none",
        a_kubeconfig({"certificate-authority-data": "aGVsbG8="}),
        ("certificate-authority-data holds no certificate",),
    ),
    Refused(
        "data that is not base64",
        a_kubeconfig({"certificate-authority-data": "%%%"}),
        ("is not base64",),
    ),
    Refused("no context", a_kubeconfig(context=""), ("current-context is not set",)),
    Refused(
        "a context that does not exist",
        a_kubeconfig(context="other"),
        ("contexts has no usable entry named 'other'",),
    ),
    Refused(
        "a token where a name belongs",
        a_kubeconfig(context=f"main\n- {TOKEN}"),
        ("it may be a credential",),
    ),
    Refused(
        "a user that does not exist",
        a_kubeconfig(users=[]),
        ("users has no usable entry named 'admin'",),
    ),
    Refused("nothing", "", ("is empty",)),
    Refused("a list", "- a", ("is not a kubeconfig",)),
    Refused("no YAML", f"a: [\n{TOKEN}", ("line 2: not YAML",)),
    Refused(
        "a token that YAML takes for a tag",
        f"users:\n- user:\n    token: !{TOKEN}\n",
        ("line 3: a tag that is not supported",),
    ),
    Refused(
        "a token that YAML takes for an alias",
        f"a: *{TOKEN}",
        ("line 1: an alias without an anchor",),
    ),
    Refused(
        "a token that is tagged as a number",
        f"a: !!int {TOKEN}\ncurrent-context: !!int {RANDOM}",
        ("contexts has no usable entry",),
    ),
    Refused(
        "a token that is a key twice",
        f"{TOKEN}: 1\n{TOKEN}: 2",
        ("line 2: a key is given twice",),
    ),
    Refused(
        "a context named by a random text",
        a_kubeconfig(context=RANDOM),
        ("it may be a credential",),
    ),
    Refused(
        "a cluster named by a random text",
        a_kubeconfig(context=f"main-{RANDOM[:16]}"),
        ("it may be a credential",),
    ),
    Refused(
        "a context that is a number",
        a_kubeconfig(context=10**20),
        ("the name of the context to use must be text",),
    ),
    Refused(
        "a context that is a list",
        a_kubeconfig(context=[TOKEN]),
        ("the name of the context to use must be text",),
    ),
    Refused(
        "brackets without end", "[" * 200_000, ("nested more than 64 levels deep",)
    ),
    Refused(
        "brackets in JSON",
        "[" * 5000 + "]" * 5000,
        ("nested more than 64 levels deep",),
    ),
    Refused(
        "objects that are merged",
        (
            "a: &a "
            f"{{{', '.join(f'k{n}: 1' for n in range(900))}}}\n"
            f"{'b: {<<: [' + ', '.join(['*a'] * 900)}]}}"
        ),
        ("merges more",),
    ),
    Refused(
        "aliases of aliases as a name",
        f"a0: &a0 [x, x]\n{BOMB}\ncurrent-context: *a40\ncontexts: [{{name: *a40}}]",
        ("has more than 10000 values",),
    ),
    Refused(
        "an alias of itself",
        "current-context: &a [*a]\ncontexts: [{name: *a}]",
        ("nested more than 64 levels deep",),
    ),
    Refused(
        "more values than any kubeconfig has",
        f"a: [{'1, ' * 20_000}]\nb: !x",
        ("has more than 10000 values",),
    ),
    Refused(
        "more text than any kubeconfig has",
        "# " + "x" * (1 << 20),
        ("is larger than 1048576 characters",),
    ),
    Refused(
        "a second document",
        f"{a_kubeconfig()}\n---\n{a_kubeconfig()}",
        ("more than one document",),
    ),
    Refused(
        "half of a surrogate pair",
        a_kubeconfig(user={"token": TOKEN + "\ud800"}),
        ("half of a surrogate pair",),
    ),
    Refused(
        "a number that Python does not read",
        a_kubeconfig().replace('"main"', "9" * 5000, 1),
        ("it may be a credential",),
    ),
    Refused("a null character in the text", "a: \0", ("unacceptable character",)),
    Refused(
        "a header after the token",
        a_kubeconfig(user={"token": f"{TOKEN}\r\nHost: x"}),
        ("token has characters that no token has",),
    ),
    Refused(
        "a server name that is none",
        a_kubeconfig({"tls-server-name": "a\nb"}),
        ("tls-server-name has characters",),
    ),
    Refused(
        "a server with a line end",
        a_kubeconfig({"server": f"https://a.example.com/\n{TOKEN}"}),
        ("cluster.server is not a URL",),
    ),
    Refused(
        "a server with a bracket",
        a_kubeconfig({"server": "https://[a"}),
        ("cluster.server is not a URL",),
    ),
    Refused(
        "a port that is none",
        a_kubeconfig({"server": "https://a.example.com:" + "9" * 5000}),
        ("cluster.server is not a URL",),
    ),
    Refused(
        "a server that is a random text",
        a_kubeconfig({"server": RANDOM}),
        ("it may be a credential",),
    ),
    Refused(
        "a chain of a thousand certificates",
        a_kubeconfig(
            {
                "certificate-authority-data": base64.b64encode(
                    base64.b64decode(CERTIFICATE) * 1000
                ).decode()
            }
        ),
        ("holds more than 250 certificates",),
    ),
    Refused(
        "a key of a hundred thousand digits",
        a_kubeconfig(
            user={
                "client-certificate-data": CERTIFICATE,
                "client-key-data": base64.b64encode(b"x" * 100_000).decode(),
            }
        ),
        ("client-key-data is larger than 65536 characters",),
    ),
    *(
        Refused(
            f"a plugin whose {part} are of the wrong type: {wrong!r}",
            a_kubeconfig(user={"exec": {"command": "a", part: wrong}}),
            (said,),
            ALLOWED,
        )
        for part, said, several in (
            ("command", "user.exec.command is not set", (None, 7, ["a"], "", "a\0b")),
            (
                "args",
                "user.exec.args must be a list of text",
                ("abc", {"a": 1}, [1], [None], ["\0"], 7),
            ),
            (
                "env",
                "user.exec.env must be a list of objects",
                (
                    "abc",
                    [1],
                    [{}],
                    [{"name": "a"}],
                    [{"name": 1, "value": "b"}],
                    [{"name": "a=b", "value": "c"}],
                    7,
                ),
            ),
            ("apiVersion", "user.exec.apiVersion must be text", (7, [1])),
        )
        for wrong in cast("tuple[Any, ...]", several)
    ),
    *(
        Refused(
            f"a provider of the wrong type: {wrong!r}",
            a_kubeconfig(user={"auth-provider": wrong}),
            ("user.auth-provider holds neither",),
            ALLOWED,
        )
        for wrong in (
            "a",
            [1],
            {"config": 7},
            {"config": {"id-token": 7}},
            {"config": {"id-token": "a\nb"}},
        )
    ),
    Refused(
        "a token that is no text",
        a_kubeconfig(user={"token": 7}),
        ("token must be text",),
    ),
    Refused(
        "everything at once",
        a_kubeconfig(
            {
                "server": "http://localhost",
                "proxy-url": "http://evil",
                "insecure-skip-tls-verify": True,
            },
            {**EXEC, "tokenFile": "/x"},
        ),
        (
            "https://",
            "loopback name",
            "proxy-url",
            "insecure-skip-tls-verify",
            "user.exec",
            "tokenFile",
        ),
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.story)
def test_indirections_are_refused_and_no_secret_is_in_the_error(
    case: Refused,
) -> None:
    with pytest.raises(CredentialsInvalid) as caught:
        parse_kubeconfig(case.text, case.settings, SUBJECT)
    text = str(caught.value)
    assert text.count(SUBJECT) == 1
    assert [said for said in case.says if said not in text] == []
    assert TOKEN not in text
    assert KEY not in text
    assert CERTIFICATE not in text
    assert RANDOM[:16] not in text
    assert len(text) < 2000
    assert text.isprintable()


@pytest.mark.parametrize(
    "name",
    [
        "prod",
        "admin@eu-1.example.com",
        "arn:aws:eks:us-east-1:123456789012:cluster/prod-1",
        "gke_my-project_europe-west1-b_c1",
    ],
)
def test_a_context_that_looks_like_a_name_is_named(name: str) -> None:
    with pytest.raises(
        CredentialsInvalid, match=f"contexts has no usable entry named '{name}'"
    ):
        parse_kubeconfig(a_kubeconfig(context=name), KubeconfigSettings(), SUBJECT)


async def test_one_client_is_created_for_concurrent_reads_of_a_kubeconfig(
    tmp_path: Path,
) -> None:
    store = SecretDirectory(tmp_path)
    await store.put(
        StoredSecret(
            "modelplane-system", "eu-1", {"kubeconfig": a_kubeconfig().encode()}
        )
    )
    pool = KubernetesPool(store, KubeconfigSettings())
    connection = Connection(
        cluster="eu-1", namespace="modelplane-system", name="eu-1", key="kubeconfig"
    )
    found = await asyncio.gather(*(pool.at(connection) for _ in range(5)))
    assert len({id(one) for one in found}) == 1
    await pool.close()


@pytest.mark.slow
async def test_a_kubeconfig_that_is_slow_to_read_stops_no_other_task(
    tmp_path: Path,
) -> None:
    store = SecretDirectory(tmp_path)
    text = "a: x\n" + " y\n" * 300_000
    await store.put(
        StoredSecret("modelplane-system", "eu-1", {"kubeconfig": text.encode()})
    )
    pool = KubernetesPool(store, KubeconfigSettings())
    connection = Connection(
        cluster="eu-1", namespace="modelplane-system", name="eu-1", key="kubeconfig"
    )
    reading = asyncio.create_task(pool.at(connection))
    longest = 0.0
    while not reading.done():
        before = time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - before)
    with pytest.raises(CredentialsInvalid):
        await reading
    assert longest < 0.4  # The total is more than twice as long.


def test_values_are_accepted() -> None:
    access = parse_kubeconfig(
        a_kubeconfig({"tls-server-name": "kubernetes"}), KubeconfigSettings(), SUBJECT
    )
    assert (access.server, access.token, access.server_name) == (
        SERVER,
        TOKEN,
        "kubernetes",
    )
    assert access.authority.startswith("-----BEGIN CERTIFICATE-----")
    assert TOKEN not in repr(access)


def test_a_client_certificate_is_accepted_and_stays_out_of_the_text_form() -> None:
    user = {"client-certificate-data": CERTIFICATE, "client-key-data": KEY}
    access = parse_kubeconfig(a_kubeconfig(user=user), KubeconfigSettings(), SUBJECT)
    assert access.key.startswith("-----BEGIN PRIVATE KEY-----")
    assert "PRIVATE" not in repr(access)


def test_yaml_is_read_as_yaml() -> None:
    tree = json.loads(a_kubeconfig())
    lists = "".join(
        f"{group}: {json.dumps(tree[group])}\n"
        for group in ("contexts", "clusters", "users")
    )
    text = f"# of the platform team\ncurrent-context: main\n{lists}"
    assert parse_kubeconfig(text, KubeconfigSettings(), SUBJECT).token == TOKEN


def test_an_operator_may_allow_loopback_and_plugins() -> None:
    settings = KubeconfigSettings(allow_loopback=True, allow_exec=True)
    access = parse_kubeconfig(
        a_kubeconfig({"server": "https://127.0.0.1:6443"}, EXEC), settings, SUBJECT
    )
    assert access.plugin is not None
    assert access.plugin.args == ("-c", "touch /tmp/pwned")
    provider = {"auth-provider": {"name": "oidc", "config": {"id-token": TOKEN}}}
    assert (
        parse_kubeconfig(a_kubeconfig(user=provider), settings, SUBJECT).token == TOKEN
    )


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
def test_a_name_must_not_resolve_to_a_refused_address_either(
    address: str, *, refused: bool
) -> None:
    assert (
        bool(api_server_rules(allow_loopback=True).refused_address(address)) is refused
    )
