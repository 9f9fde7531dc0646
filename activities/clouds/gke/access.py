"""Find the API server of an existing GKE cluster: all addresses that Google reports."""

import base64
import binascii
import re

from activities.clouds.gke.api import GoogleApi
from activities.clouds.provider import ApiServerEndpoint
from api_types.errors import CredentialsInvalid, ServerError

_NAME = re.compile(r"gke_([a-z0-9.:-]{1,100})_([a-z0-9-]{1,40})_([a-z0-9-]{1,40})")


def cluster_path(name: str) -> str:
    """Return the path of a cluster from its name in a kubeconfig that `gcloud` wrote.

    Raises CredentialsInvalid for a name in another form.
    """
    called = _NAME.fullmatch(name)
    if called is None:
        raise CredentialsInvalid(
            "tokens are sent to GKE clusters only, which the name in the clusters of the "
            "kubeconfig must identify: name it gke_PROJECT_LOCATION_CLUSTER, as `gcloud "
            "container clusters get-credentials` does"
        )
    return f"projects/{called[1]}/locations/{called[2]}/clusters/{called[3]}"


def endpoints_of(api: GoogleApi, path: str) -> list[ApiServerEndpoint]:
    """Return the public, private and DNS endpoints of a cluster.

    The DNS endpoint has a public certificate, so its certificate authority is empty.
    Raises CredentialsInvalid if the cluster does not exist.
    """
    found = api.find("container", "get_cluster", {"name": path})
    if found is None:
        raise CredentialsInvalid(f"cluster {path} does not exist")
    try:
        authority = base64.b64decode(
            found.master_auth.cluster_ca_certificate, validate=True
        ).decode("ascii")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise ServerError(
            f"Google returned a malformed certificate authority for cluster {path}"
        ) from None
    addresses, of_name = (
        found.control_plane_endpoints_config.ip_endpoints_config,
        found.control_plane_endpoints_config.dns_endpoint_config,
    )
    private = found.private_cluster_config
    hosts = (
        found.endpoint,
        addresses.public_endpoint,
        addresses.private_endpoint,
        private.public_endpoint,
        private.private_endpoint,
    )
    # Without a certificate authority a client would trust any server with a public
    # certificate, so an IP address is never returned without one.
    endpoints = [
        ApiServerEndpoint(f"https://{host}", authority)
        for host in dict.fromkeys(hosts)
        if host and authority
    ]
    if of_name.endpoint:
        endpoints.append(ApiServerEndpoint(f"https://{of_name.endpoint}", ""))
    return endpoints
