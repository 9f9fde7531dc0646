"""The answers that were given, so that a repeated request gets the same one."""

from typing import Any

# Repeated requests are answered verbatim for as long as a deployment may repeat them.
ANSWERS_KEPT = 512


class AnswerCache:
    """The newest answers by request id, in wire form."""

    def __init__(self, answers: dict[str, dict[str, Any]]) -> None:
        self.by_request = answers
        # Of requests that are decided again; only a different answer is sent.
        self._superseded: dict[str, dict[str, Any]] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.by_request

    def __getitem__(self, request_id: str) -> dict[str, Any]:
        return self.by_request[request_id]

    def supersede(self, request_id: str) -> None:
        """Put an answer aside, because its request is decided again."""
        if request_id in self.by_request:
            self._superseded[request_id] = self.by_request.pop(request_id)

    def record(self, request_id: str, answer: dict[str, Any]) -> bool:
        """Keep an answer; False if it is the same as the one that was superseded."""
        before = self._superseded.pop(request_id, None)
        self.by_request[request_id] = answer
        while len(self.by_request) > ANSWERS_KEPT:
            del self.by_request[next(iter(self.by_request))]
        return answer != before
