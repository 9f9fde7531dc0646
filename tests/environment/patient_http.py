"""An HTTP client for API servers that asks again when told to wait, as client-go does.

A kind whose definition was created or changed just now has no storage for a moment: the API server answers 429 with Retry-After.
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
            time.sleep(min(float(answer.headers.get("retry-after") or 1), PAUSE_SECONDS_MAX))
        return answer


def patient_client(server: str, trust: ssl.SSLContext, timeout: float) -> httpx.Client:
    """Make a client of an API server, with a limit for each request in seconds. Gives the last answer if it is always told to wait."""
    return httpx.Client(base_url=server, transport=_Patient(verify=trust, trust_env=False), trust_env=False, timeout=timeout)
