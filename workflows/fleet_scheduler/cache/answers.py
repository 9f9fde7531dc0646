"""The answers so far, so that a repeated request gets the same answer."""

from typing import Any

from api_types.payloads.limits import wire_size

# Repeated requests are answered verbatim for as long as a deployment may repeat them.
ANSWERS_KEPT = 512
# The memory limit. An answer for a thousand replicas can be as large as a payload.
ANSWERS_BYTES_MAX = 32 * 1024 * 1024


class AnswerCache:
    """The newest answers by request id, in wire form."""

    def __init__(self, answers: dict[str, dict[str, Any]]) -> None:
        self.by_request = answers
        # The answers of requests that are decided again. Only a different answer is
        # sent. A request may stay here, because its deployment never repeats it.
        self._superseded: dict[str, dict[str, Any]] = {}
        self._sizes = {
            request_id: wire_size(answer) for request_id, answer in answers.items()
        }
        self._bytes = sum(self._sizes.values())

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.by_request

    def __getitem__(self, request_id: str) -> dict[str, Any]:
        return self.by_request[request_id]

    def supersede(self, request_id: str) -> None:
        """Set an answer aside, because its request is decided again."""
        if request_id in self.by_request:
            self._superseded[request_id] = self.by_request.pop(request_id)

    def next_sequence(self, request_id: str, now: int) -> int:
        """Return a number above the number of the superseded answer.

        It is also above the number that a discarded attempt at this workflow task used,
        because that attempt was earlier.
        """
        before: int = self._superseded.get(request_id, {}).get("sequence", 0)
        return max(now, before + 1)

    def record(self, request_id: str, answer: dict[str, Any]) -> bool:
        """Keep an answer; return False if it equals the superseded answer."""
        before = self._superseded.pop(request_id, None)
        self._forget(request_id)
        self.by_request[request_id] = answer
        self._sizes[request_id] = wire_size(answer)
        self._bytes += self._sizes[request_id]
        while len(self._sizes) > ANSWERS_KEPT or (
            self._bytes > ANSWERS_BYTES_MAX and len(self._sizes) > 1
        ):
            self._forget(next(iter(self._sizes)))
        return before is None or {**before, "sequence": 0} != {**answer, "sequence": 0}

    def _forget(self, request_id: str) -> None:
        """Forget an answer, superseded or not.

        Its request is decided again, and the new answer is sent.
        """
        self.by_request.pop(request_id, None)
        self._superseded.pop(request_id, None)
        self._bytes -= self._sizes.pop(request_id, 0)
