"""Clients of a model that never pause: some stream long answers, one asks short questions. Each answer that is not whole is remembered."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import httpx

TOKENS = 120
REQUEST = {"model": "simulated", "stream": True, "max_tokens": TOKENS, "seconds_per_token": 0.1}
CLIENTS = 4
ASK_EVERY_SECONDS = 0.01


class _Address:
    """Where clients send requests, until told to stop. `unanswered` are the clients whose request has no answer yet."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.unanswered: set[int] = set()
        self.stop = threading.Event()

    def may_send(self) -> bool:
        """Whether the calling client may send one more request; it counts as unanswered from here on."""
        self.unanswered.add(threading.get_ident())
        if self.stop.is_set():
            self.answered()
        return not self.stop.is_set()

    def answered(self) -> None:
        """The calling client has an answer, or the beginning of one."""
        self.unanswered.discard(threading.get_ident())


class Streams:
    """While it is entered, clients send requests to each address, one after the other; leaving it waits for the last answers."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._addresses = {url: _Address(url) for url in urls}
        clients: list[Callable[[_Address], None]] = [*[self._stream_on] * CLIENTS, self._ask_on]
        self._threads = [threading.Thread(target=client, args=(each,)) for each in self._addresses.values() for client in clients]
        self.pods: list[str] = []
        """Which pod gave each whole answer."""
        self.begun: list[str] = []
        """Which pod began each answer."""
        self.cut: list[str] = []
        """What was wrong with each of the others."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for address in self._addresses.values():
            address.stop.set()
        for thread in self._threads:
            thread.join()

    async def pods_since(self, earlier: int) -> set[str]:
        """The pods that have begun an answer since so many were begun."""
        return set(self.begun[earlier:])

    def leave(self, url: str) -> None:
        """Send no further request to an address; gives back when only answers are left that have begun, and these go on."""
        address = self._addresses[url]
        address.stop.set()
        while address.unanswered:
            time.sleep(ASK_EVERY_SECONDS)

    def _ask_on(self, address: _Address) -> None:
        """Ask short questions: one of them arrives in each moment in which a gateway knows less than a pod."""
        with httpx.Client(base_url=address.url, trust_env=False, timeout=None) as client:  # noqa: S113 - a busy machine is no failure
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
        """Stream one answer; gives the pod. Raises ValueError if it is refused or not whole."""
        words: list[str] = []
        try:
            return self._read(address, words)
        except httpx.HTTPError as error:
            raise ValueError(f"{type(error).__name__} {error} after {len(words)} words: {' '.join(words[:3])}") from error

    def _read(self, address: _Address, words: list[str]) -> str:
        url = f"{address.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=REQUEST, trust_env=False, timeout=None) as answer:  # noqa: S113 - a busy machine is no failure
            answer.raise_for_status()
            for line in filter(None, answer.iter_lines()):
                if line == "data: [DONE]":
                    break
                words.append(json.loads(line.removeprefix("data: "))["choices"][0]["delta"]["content"].strip())
                if len(words) == 2:  # of "pod ADDRESS was asked"
                    self.begun.append(words[1])
                    address.answered()
            else:
                raise ValueError(f"cut after {len(words)} words: {' '.join(words[:3])}")
        if len(words) != TOKENS:
            raise ValueError(f"{len(words)} of {TOKENS} words")
        return words[1]
