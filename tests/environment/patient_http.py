"""An HTTP client for API servers that retries after 429, as client-go does.

A kind whose definition was just created or changed has no storage for a moment. Until
then the API server answers 429 with Retry-After.
"""

import ssl
import time

import httpx

ATTEMPTS = 30
PAUSE_SECONDS_MAX = 5.0


class _Patient(httpx.HTTPTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(ATTEMPTS):
            answer = super().handle_request(request)
            if answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
                break
            answer.read()
            answer.close()
            time.sleep(
                min(float(answer.headers.get("retry-after") or 1), PAUSE_SECONDS_MAX)
            )
        return answer


def patient_client(server: str, trust: ssl.SSLContext, timeout: float) -> httpx.Client:
    """Return a client of an API server.

    `timeout` limits each request, in seconds.

    The client returns the last response after ATTEMPTS responses with status 429.
    """
    return httpx.Client(
        base_url=server,
        transport=_Patient(verify=trust, trust_env=False),
        trust_env=False,
        timeout=timeout,
    )
