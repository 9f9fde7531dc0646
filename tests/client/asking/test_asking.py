"""Requests to a service: the sent request, the shown answer, and the text of failures."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any, ClassVar

import httpx
import pytest

from client.asking.events import LINE_BYTES_MAX, tokens_of
from client.asking.requests import (
    ANSWER_BYTES_MAX,
    checked_path,
    read_headers,
    read_whole,
)
from client.asking.service import ServiceAddress
from client.commands.ask import chat as chat_command
from client.commands.ask import curl as curl_command
from fleet_client.errors import CommandFailed, Refused
from fleet_client.refs.targets import Target, kind_named
from tests.client.conftest import Cli
from tests.environment.http_server import serving

TARGET = Target.of(kind_named("ms"), "ml-team", "qwen")


def chunk(text: str) -> bytes:
    return (
        f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n".encode()
    )


async def arriving(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def tokens(*parts: bytes) -> list[str]:
    return [token async for token in tokens_of(arriving(parts))]


DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([chunk("a") + chunk("b") + DONE], id="in one piece"),
        pytest.param(
            [bytes([byte]) for byte in chunk("a") + chunk("b") + DONE],
            id="byte by byte",
        ),
        pytest.param(
            [(chunk("a") + chunk("b") + DONE).replace(b"\n", b"\r\n")],
            id="lines that end in CRLF",
        ),
        pytest.param(
            [b": keep-alive\n\n", chunk("a"), b"event: x\nid: 1\n", chunk("b"), DONE],
            id="comments and other fields",
        ),
        pytest.param(
            [chunk("a"), chunk("b"), b"data:[DONE]"],
            id="no space, and no end of the last line",
        ),
        pytest.param(
            [chunk("a"), b'data: {"choices": []}\n\n', chunk("b"), DONE],
            id="an event without choices",
        ),
    ],
)
async def test_the_texts_of_a_stream_are_read_independently_of_its_chunks(
    parts: list[bytes],
) -> None:
    assert [token for token in await tokens(*parts) if token] == ["a", "b"]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([chunk("a")], "was cut off"),
        (
            [b'data: {"error": {"message": "out of memory"}}\n\n', DONE],
            "the model failed: out of memory",
        ),
        ([b"data: no json\n\n"], "not part of a chat completion: no json"),
        ([b"data: [1]\n\n"], "not part of a chat completion"),
        ([b"x" * (LINE_BYTES_MAX + 1)], "a line of more than 1 MiB"),
    ],
)
async def test_a_stream_that_is_none_is_an_error_in_words(
    parts: list[bytes], says: str
) -> None:
    with pytest.raises(CommandFailed) as failed:
        await tokens(*parts)
    assert says in failed.value.message


def test_a_path_stays_below_the_service() -> None:
    assert checked_path("v1/models?limit=2") == "/v1/models?limit=2"
    assert checked_path("/v1/a?q=https://x/../y") == "/v1/a?q=https://x/../y"
    assert checked_path("/v1/models/Qwen%2FQwen3-8B") == "/v1/models/Qwen%2FQwen3-8B"
    elsewhere = (
        "../other",
        "/v1/../../x",
        "/./x",
        "https://elsewhere/x",
        "/a b",
        "/a\nb",
        "/a\x7fb",
    )
    encoded = (
        "/%2e%2e/x",
        "/..%2fx",
        "/a/%2E./x",
        "/%252e%252e/x",
        "/..%5cx",
        "/%25252525252e%25252525252e/x",
    )
    for path in (*elsewhere, *encoded):
        with pytest.raises(Refused, match="is not a path below the service"):
            checked_path(path)


def test_all_bad_headers_are_named_at_once() -> None:
    assert read_headers(["X-A: b", "Authorization:Bearer t"]) == {
        "X-A": "b",
        "Authorization": "Bearer t",
    }
    with pytest.raises(Refused) as refused:
        read_headers(["nothing", "Host: x", "Content-Length: 3"])
    assert len(refused.value.details) == 3


@pytest.mark.parametrize(
    "name",
    [
        "Connection",
        "Content-Length",
        "Host",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
    ],
)
def test_a_header_of_the_connection_is_refused(name: str) -> None:
    with pytest.raises(Refused) as refused:
        read_headers([f"{name}: x"])
    assert refused.value.message == "these headers cannot be sent"
    assert list(refused.value.details) == [
        f"{name} belongs to the connection and cannot be set"
    ]


async def test_an_answer_that_never_ends_is_not_kept() -> None:
    response = httpx.Response(
        200, content=arriving([b"x" * (1 << 20)] * (1 + (ANSWER_BYTES_MAX >> 20)))
    )
    with pytest.raises(CommandFailed, match="longer than 16 MiB"):
        await read_whole(response)


class Model(BaseHTTPRequestHandler):
    """A gateway with a model behind it."""

    status: ClassVar[int] = HTTPStatus.OK
    seen: ClassVar[list[tuple[str, str, Any]]] = []
    streams: ClassVar[bool] = True

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.seen.append((self.command, self.path, json.loads(body) if body else None))
        streams = self.streams and body and json.loads(body).get("stream")
        if self.status != HTTPStatus.OK:
            self._send(b"no route here\n", "text/plain", by="")
        elif self.path.endswith("/v1/models"):
            self._send(b'{"data": [{"id": "qwen3"}]}', "application/json")
        elif streams:
            self._send(
                chunk("Hello ") + chunk("you\x1b[2J") + DONE, "text/event-stream"
            )
        else:
            self._send(
                json.dumps({"choices": [{"message": {"content": "Hello"}}]}).encode(),
                "application/json",
            )

    def _send(self, body: bytes, kind: str, *, by: str = "qwen-1") -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if by:
            self.send_header("x-modelplane-endpoint", by)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceAddress]:
    Model.status, Model.seen = HTTPStatus.OK, []
    with serving(Model) as where:
        address = ServiceAddress(
            TARGET, f"http://{where}/ml-team/qwen", {"qwen-1": "eu"}
        )

        async def find(target: Target, gateway: str | None) -> ServiceAddress:
            del gateway
            assert target == TARGET
            return address

        for module in (chat_command, curl_command):
            monkeypatch.setattr(module, "find_service", find)
        yield address


@pytest.mark.usefixtures("service")
def test_a_chat_streams_and_names_the_replica_that_answered(cli: Cli) -> None:
    result = cli("chat", "qwen", "-n", "ml-team", "hello", "there")
    assert result.code == 0, result.err
    # The terminal does not obey the text of a model.
    assert result.out == "Hello you\\x1b[2J\n"
    assert "answered by qwen-1 on eu: first token after" in result.err
    assert [path for _, path, _ in Model.seen] == [
        "/ml-team/qwen/v1/models",
        "/ml-team/qwen/v1/chat/completions",
    ]
    assert Model.seen[1][2] == {
        "model": "qwen3",
        "messages": [{"role": "user", "content": "hello there"}],
        "stream": True,
    }


@pytest.mark.usefixtures("service")
def test_a_model_that_does_not_stream_is_read_as_a_whole(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Model, "streams", False)
    result = cli("chat", "qwen", "-n", "ml-team", "hello")
    assert (result.code, result.out) == (0, "Hello\n"), result.err


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(("end", "code"), [(EOFError, 0), (KeyboardInterrupt, 130)])
def test_a_conversation_keeps_earlier_messages_and_ends_at_once(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, end: type[BaseException], code: int
) -> None:
    lines = iter(["one", "", "two"])

    def read(_prompt: str) -> str:
        line = next(lines, None)
        if line is None:
            raise end
        return line

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", read)
    assert cli("chat", "qwen", "-n", "ml-team", "--no-stream").code == code
    said = [
        [each["content"] for each in body["messages"]]
        for _, path, body in Model.seen
        if path.endswith("completions")
    ]
    assert said == [["one"], ["one", "Hello", "two"]]


@pytest.mark.usefixtures("service")
def test_a_chat_without_a_stream_with_a_named_model(cli: Cli) -> None:
    result = cli(
        "chat", "ms/qwen", "-n", "ml-team", "--model", "other", "--no-stream", "hello"
    )
    assert (result.code, result.out) == (0, "Hello\n")
    assert [body["model"] for _, _, body in Model.seen] == ["other"]


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (
            HTTPStatus.NOT_FOUND,
            3,
            "the gateway has no route for ModelService ml-team/qwen",
        ),
        (
            HTTPStatus.SERVICE_UNAVAILABLE,
            1,
            "no endpoint of ModelService ml-team/qwen is ready",
        ),
        (HTTPStatus.TOO_MANY_REQUESTS, 1, "answered 429 Too Many Requests"),
    ],
)
def test_a_refusal_of_the_gateway_has_a_message(
    cli: Cli, status: int, code: int, says: str
) -> None:
    Model.status = status
    result = cli("chat", "qwen", "-n", "ml-team", "hello")
    assert result.code == code
    assert says in result.err
    assert "Traceback" not in result.err


def test_a_gateway_that_does_not_answer_is_unreachable(
    cli: Cli, service: ServiceAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(target: Target, gateway: str | None) -> ServiceAddress:
        del target, gateway
        return ServiceAddress(service.target, "http://127.0.0.1:1/ml-team/qwen")

    monkeypatch.setattr(chat_command, "find_service", find)
    result = cli("chat", "qwen", "-n", "ml-team", "hello")
    assert result.code == 6
    assert "http://127.0.0.1:1/ml-team/qwen/v1/models does not answer" in result.err
    assert "describe ms/qwen -n ml-team" in result.err


@pytest.mark.usefixtures("service")
def test_curl_sends_the_given_request(cli: Cli) -> None:
    result = cli(
        "curl",
        "qwen",
        "/v1/embeddings",
        "-n",
        "ml-team",
        "-d",
        '{"a": 1}',
        "-H",
        "X-A: b",
    )
    assert result.code == 0, result.err
    assert result.err.startswith("200 OK from qwen-1 on eu")
    assert Model.seen == [("POST", "/ml-team/qwen/v1/embeddings", {"a": 1})]
    Model.status = HTTPStatus.NOT_FOUND
    assert cli("curl", "qwen", "/x", "-n", "ml-team").code == 1


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("path", "status", "terminal", "end"),
    [
        ("/v1/models", HTTPStatus.OK, True, "}]}\n"),
        ("/v1/models", HTTPStatus.OK, False, "}]}"),
        ("/x", HTTPStatus.NOT_FOUND, True, "no route here\n"),
    ],
    ids=["a terminal", "a pipe", "a terminal, and the body ends its line"],
)
def test_a_prompt_after_curl_begins_a_line(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    status: int,
    end: str,
    *,
    terminal: bool,
) -> None:
    Model.status = status
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    out = cli("curl", "qwen", path, "-n", "ml-team").out
    assert out.endswith(end)
    assert not out.endswith("\n\n")


def test_curl_refuses_before_anything_is_sent(cli: Cli) -> None:
    for words, says in (
        (("/../x",), "is not a path below the service"),
        (("/x", "-X", "BREW"), "'BREW' is not a method"),
        (("/x", "-H", "Host: y"), "belongs to the connection"),
        (("/x", "-d", "@/nowhere/at/all"), "cannot be read"),
    ):
        result = cli("curl", "qwen", *words)
        assert result.code == 2
        assert says in result.err
