"""The command, ports, paths and files of the process with the fake clouds.

This module imports nothing of the fakes, so a testbed without fake clouds needs none of
their packages.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

GKE, EKS = "GKE", "EKS"
CLOUDS = (GKE, EKS)
PARTS = ("google-grpc", "google-http", "aws", "control")
"""The parts of the process that listen on their own port."""
REMAINS, CALLS, CHARTS, TROUBLES = "/remains", "/calls", "/charts/", "/troubles"

_REVIEWS = {GKE: ("google-http", "/tokenreview"), EKS: ("aws", "/_fake/token-review")}


def command(config: Path) -> list[str]:
    """Return the command that starts the process."""
    return [sys.executable, "-m", "testbed.cloud_process", str(config)]


def review_url(cloud: str, ports: Mapping[str, int]) -> str:
    """Return the URL of a cloud's token review, for the webhook of an API server."""
    part, path = _REVIEWS[cloud]
    return f"http://127.0.0.1:{ports[part]}{path}"


def secret_name(cloud: str) -> str:
    """Return the name of the Secret with a cloud's credential.

    Manifests that name no Secret use this one.
    """
    return f"{cloud.lower()}-default"


def credential_file(folder: Path, cloud: str) -> Path:
    """Return the file with the credential of a cloud."""
    return folder / secret_name(cloud)
