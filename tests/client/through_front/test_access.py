"""Refusals of an address or a credential before anything is sent to the front."""

import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from api_types import environment
from client.failures import ExitCode
from fleet_client.through_front.access import FrontAccess, read_access
from testbed.cluster.pki import Authority
from tests.client.conftest import Cli
from tests.front.command_line import OF_FRONT, CommandLine

Line = Callable[[str], CommandLine]
TOKEN = "token-that-nobody-may-see"  # noqa: S105


def access(monkeypatch: pytest.MonkeyPatch, url: str, **more: str) -> FrontAccess:
    for variable in OF_FRONT:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(environment.SERVER_VARIABLE, url)
    for name, value in more.items():
        monkeypatch.setenv(f"{environment.PREFIX}{name}", value)
    return read_access()


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("https://front.example.com", "https://front.example.com"),
        ("https://front.example.com:8443/", "https://front.example.com:8443"),
        (" https://[2001:db8::1]:8443 ", "https://[2001:db8::1]:8443"),
        ("http://127.0.0.1:8443", "http://127.0.0.1:8443"),
        ("http://127.8.8.8:1", "http://127.8.8.8:1"),
        ("http://[::1]:8443", "http://[::1]:8443"),
        ("http://localhost:8443", "http://localhost:8443"),
    ],
)
def test_the_address_of_a_front(
    url: str, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = access(monkeypatch, url)
    assert (found.url, bool(found.tls.get_ca_certs())) == (
        want,
        want.startswith("https"),
    )


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://front.example.com", "is not encrypted"),
        ("http://10.0.0.1:8443", "is not encrypted"),
        ("http://localhost.example.com", "is not encrypted"),
        ("http://127.0.0.1.example.com", "is not encrypted"),
        ("front.example.com:8443", "is not the address of a front"),
        ("ftp://front.example.com", "is not the address of a front"),
        ("file:///etc/passwd", "is not the address of a front"),
        ("https://", "is not the address of a front"),
        ("https://front.example.com/prefix", "is not the address of a front"),
        ("https://front.example.com?token=x", "is not the address of a front"),
        ("https://front.example.com#x", "is not the address of a front"),
        ("https://front.example.com:port", "is not the address of a front"),
        ("https://front.example.com:99999", "is not the address of a front"),
        ("https://fro nt.example.com", "is not the address of a front"),
        ("https://front.example.com\r\nX: y", "is not the address of a front"),
        ("https://[::1", "is not the address of a front"),
        ("https://front.example.com?token=secret", "is not the address of a front"),
        ("https://front.example.com#secret", "is not the address of a front"),
        ("https://me:secret@front.example.com", "has a user or password in it"),
        ("https://me:secret#@front.example.com", "has a user or password in it"),
        ("https://me:secret@[front.example.com", "has a user or password in it"),
        ("me:secret@front.example.com", "has a user or password in it"),
        ("", "is empty"),
        (" \t", "is empty"),
    ],
)
async def test_an_invalid_address_of_a_front_is_rejected(
    line: Line, url: str, says: str
) -> None:
    """Commands that go through a front, and commands that need Temporal.

    None goes to Temporal instead.
    """
    for words in (
        ["get", "md"],
        ["scale", "md/a", "--replicas", "1"],
        ["delete", "md/qwen"],
        ["explain", "md/qwen"],
        ["drain", "oslo"],
        ["logs"],
        ["ui"],
    ):
        shown = await line(url).run(*words, token=TOKEN)
        assert (shown.code, shown.out) == (ExitCode.REFUSED, ""), words
        assert says in shown.err.splitlines()[0]
        assert shown.err.splitlines()[-1].startswith("next: ")
        assert TOKEN not in shown.err
        assert "secret" not in shown.err


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "option", ["--token-file", "--ca-file", "--client-cert", "--client-key"]
)
def test_an_option_for_a_front_without_one_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    for variable in OF_FRONT:
        # Set and remove it: then monkeypatch also undoes a value that the command sets.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    shown = cli(option, "file", "get", "md")
    assert (
        shown.code,
        shown.err.splitlines()[0].endswith("apply to a front, and no front is named"),
    ) == (ExitCode.REFUSED, True)


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("written", ["", " ", "\n"])
def test_an_option_that_names_an_empty_server_is_refused_by_every_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """Also if a variable names another front, and for a command that uses no server."""
    for words in (["get", "md"], ["delete", "md/qwen"], ["schema"]):
        monkeypatch.setenv(environment.SERVER_VARIABLE, "http://127.0.0.1:1")
        shown = cli("--server", written, *words)
        assert (shown.code, "the address of the front is empty" in shown.err) == (
            ExitCode.REFUSED,
            True,
        ), words


def test_a_file_with_a_token_wins_over_the_variable_and_nothing_of_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"\n{TOKEN}\n")
    found = access(
        monkeypatch,
        "https://front.example.com",
        TOKEN="other",  # noqa: S106
        TOKEN_FILE=str(file),
    )
    assert (found.token, TOKEN in repr(found)) == (TOKEN, False)
    assert (
        access(monkeypatch, "https://front.example.com", TOKEN=f" {TOKEN}\n").token
        == TOKEN
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (f"{TOKEN}\r\nX-Other: {TOKEN}".encode(), "is invalid"),
        (f"{TOKEN} {TOKEN}".encode(), "is invalid"),
        (f"{TOKEN}ä".encode(), "contains no token"),
        (b"x" * 20_000, "is invalid"),
    ],
)
async def test_a_file_without_a_token_is_refused(
    line: Line, tmp_path: Path, content: bytes | None, says: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    shown = await line("http://127.0.0.1:1").run("--token-file", str(file), "get", "md")
    assert (shown.code, says in shown.err, TOKEN in shown.err) == (
        ExitCode.REFUSED,
        True,
        False,
    )


async def test_a_token_among_the_arguments_is_refused_and_not_repeated(
    line: Line,
) -> None:
    for words in (["--token", TOKEN, "get", "md"], [f"--token={TOKEN}", "get", "md"]):
        shown = await line("http://127.0.0.1:1").run(*words)
        assert (shown.code, shown.out, TOKEN in shown.err) == (
            ExitCode.REFUSED,
            "",
            False,
        )
        assert "--token-file" in shown.err
        assert os.environ.get(environment.TOKEN_VARIABLE) == ""


async def test_files_of_tls_that_cannot_be_used_are_named(
    line: Line, tmp_path: Path
) -> None:
    pki = Authority(tmp_path / "pki")
    pki.ensure()
    pair = pki.pair("admin")
    (tmp_path / "empty").touch()
    bad: list[tuple[list[str], str]] = [
        (["--ca-file", "/nowhere/ca.crt"], "--ca-file: /nowhere/ca.crt cannot be used"),
        (["--ca-file", str(tmp_path / "empty")], "--ca-file"),
        (["--client-cert", str(pair.certificate)], "needs its key"),
        (["--client-key", str(pair.key)], "needs its key"),
        (
            ["--client-cert", str(pair.key), "--client-key", str(pair.certificate)],
            "--client-cert, --client-key",
        ),
    ]
    for words, says in bad:
        commands = line("https://127.0.0.1:1")
        shown = await commands.run(*words, "get", "md")
        assert (shown.code, says in shown.err) == (ExitCode.REFUSED, True), (
            words,
            shown,
        )


def test_the_certificate_must_match_the_host_and_old_tls_versions_are_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pki = Authority(tmp_path / "pki")
    pki.ensure()
    tls = access(monkeypatch, "https://front.example.com", CA_FILE=str(pki.ca)).tls
    assert (tls.verify_mode, tls.check_hostname, tls.minimum_version) == (
        ssl.CERT_REQUIRED,
        True,
        ssl.TLSVersion.TLSv1_2,
    )


@pytest.mark.usefixtures("nowhere")
def test_without_a_server_commands_go_to_temporal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(environment.SERVER_VARIABLE, raising=False)
    assert "Temporal at 127.0.0.1:1 does not answer" in cli("get", "md").err
