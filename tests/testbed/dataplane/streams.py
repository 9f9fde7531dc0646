"""Clients of a model that never pause.

Some stream long answers, one asks short questions. Each incomplete answer is recorded.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import httpx

from tests.workflows.environment.harness import eventually

TOKENS = 120
REQUEST = {
    "model": "simulated",
    "stream": True,
    "max_tokens": TOKENS,
    "seconds_per_token": 0.1,
}
CLIENTS = 4
ASK_EVERY_SECONDS = 0.01


class _Address:
    """Clients of several addresses.

    `unanswered` are the clients whose request has no answer yet.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.unanswered: set[int] = set()
        self.stop = threading.Event()

    def may_send(self) -> bool:
        """Return whether the calling client may send one more request, which counts as
        unanswered.
        """
        self.unanswered.add(threading.get_ident())
        if self.stop.is_set():
            self.answered()
        return not self.stop.is_set()

    def answered(self) -> None:
        """The calling client has an answer, or its first part."""
        self.unanswered.discard(threading.get_ident())


class Streams:
    """Send requests of clients to each address during the block.

    The end of the block waits for the last answers.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._addresses = {url: _Address(url) for url in urls}
        clients: list[Callable[[_Address], None]] = [
            *[self._stream_on] * CLIENTS,
            self._ask_on,
        ]
        self._threads = [
            threading.Thread(target=client, args=(each,))
            for each in self._addresses.values()
            for client in clients
        ]
        self.pods: list[str] = []
        """The pod of each complete answer."""
        self.begun: list[str] = []
        """The pod of each begun answer."""
        self.cut: list[str] = []
        """The problem of each other answer."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for address in self._addresses.values():
            address.stop.set()
        for thread in self._threads:
            thread.join()

    async def pods_since(self, earlier: int) -> set[str]:
        """Return the pods of the answers after the first `since`."""
        return set(self.begun[earlier:])

    def leave(self, url: str) -> None:
        """Stop sending to an address.

        Return when the only running answers have begun.
        """
        address = self._addresses[url]
        address.stop.set()
        while address.unanswered:
            time.sleep(ASK_EVERY_SECONDS)

    def _ask_on(self, address: _Address) -> None:
        """Ask short questions.

        One of them arrives in each moment in which a gateway's state is older than a
        pod's.
        """
        with httpx.Client(
            base_url=address.url,
            trust_env=False,
            timeout=None,  # noqa: S113 - a busy machine is no failure
        ) as client:
            while address.may_send():
                try:
                    client.get("/v1/models").raise_for_status()
                except httpx.HTTPError as error:
                    self.cut.append(f"{address.url}: {type(error).__name__} {error}")
                address.answered()
                time.sleep(ASK_EVERY_SECONDS)

    def _stream_on(self, address: _Address) -> None:
        while address.may_send():
            try:
                self.pods.append(self._stream(address))
            except ValueError as error:
                self.cut.append(f"{address.url}: {error} at {time.strftime('%X')}")
            address.answered()

    def _stream(self, address: _Address) -> str:
        """Stream one answer, and return its pod.

        Raise ValueError if it is refused or incomplete.
        """
        words: list[str] = []
        try:
            return self._read(address, words)
        except httpx.HTTPError as error:
            raise ValueError(
                f"{type(error).__name__} {error} after {len(words)} words: {' '.join(words[:3])}"
            ) from error

    def _read(self, address: _Address, words: list[str]) -> str:
        url = f"{address.url}/v1/chat/completions"
        with httpx.stream(
            "POST",
            url,
            json=REQUEST,
            trust_env=False,
            timeout=None,  # noqa: S113 - a busy machine is no failure
        ) as answer:
            answer.raise_for_status()
            for line in filter(None, answer.iter_lines()):
                if line == "data: [DONE]":
                    break
                words.append(
                    json.loads(line.removeprefix("data: "))["choices"][0]["delta"][
                        "content"
                    ].strip()
                )
                if len(words) == 2:  # of "pod ADDRESS was asked"
                    self.begun.append(words[1])
                    address.answered()
            else:
                raise ValueError(f"cut after {len(words)} words: {' '.join(words[:3])}")
        if len(words) != TOKENS:
            raise ValueError(f"{len(words)} of {TOKENS} words")
        return words[1]


async def all_answer(streams: Streams, replicas: int) -> None:
    """Wait until so many more pods have begun an answer."""
    earlier = len(streams.begun)
    await eventually(
        lambda: streams.pods_since(earlier),
        lambda pods: len(pods) >= replicas,
        what="an answer of each replica",
    )
