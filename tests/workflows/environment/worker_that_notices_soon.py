"""The worker as users run it, but it probes clusters every `PROBE_SECONDS` seconds."""

import os

import worker
from activities.watching import health

SECONDS_VARIABLE = "PROBE_SECONDS"


if __name__ == "__main__":
    health.PROBE_SECONDS = health.RETRY_SECONDS = float(os.environ[SECONDS_VARIABLE])
    worker.main()
