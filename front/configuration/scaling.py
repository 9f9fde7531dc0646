"""The parts of the front for autoscalers, from the settings."""

from typing import Any

import grpc
from cryptography import x509

from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from front.access.files import BadAccessFile, WatchedFile
from front.configuration.authorities import client_tls
from front.configuration.listening import is_loopback
from front.scaling.numbers import Told
from front.scaling.scraping import ScrapeFile, Scraper
from front.store.projection import Projection


def scraper_of(
    front: FrontSettings, told: Told, projection: Projection
) -> Scraper | None:
    """Read the file of scrape targets.

    Returns None if the settings name no file. Raises `Refused`.
    """
    if front.scrape_file is None:
        return None
    if front.scrape_interval >= front.metrics_max_age:
        raise Refused(
            f"front.scrapeInterval is {front.scrape_interval}, but metrics expire "
            f"after front.metricsMaxAge, {front.metrics_max_age}",
            next_step="set front.scrapeInterval to less than half of "
            "front.metricsMaxAge",
        )
    tls = client_tls("front.scrapeCaFile", front.scrape_ca_file)
    try:
        return Scraper(
            WatchedFile(front.scrape_file, ScrapeFile),
            told,
            projection,
            front.scrape_interval,
            tls,
        )
    except BadAccessFile as error:
        raise Refused(
            f"front.scrapeFile: {error}",
            next_step="see the example in docs/how-to/autoscaling.md",
        ) from error


def scaler_credentials(front: FrontSettings) -> Any:
    """Return the TLS credentials of the external scaler.

    Returns None without TLS or without an external scaler. Raises `Refused`.
    """
    if not front.scaler_listen:
        return None
    if front.access_file is None and (
        front.review_kubeconfig or front.request_header_ca
    ):
        raise Refused(
            "front.scalerListen needs front.accessFile and front.scalerClientCa if an "
            "API server authenticates users: KEDA authenticates with a certificate, "
            "and front.reviewKubeconfig does not apply to users with certificates",
            next_step="set both, or leave front.scalerListen empty",
        )
    if front.access_file is None:
        if not is_loopback(front.scaler_listen.rpartition(":")[0].strip("[]")):
            raise Refused(
                f"front.scalerListen is {front.scaler_listen}, which other machines can "
                "reach, and front.accessFile is not set",
                next_step="set front.accessFile and front.scalerClientCa, or listen on "
                "127.0.0.1",
            )
    elif front.scaler_client_ca is None or front.tls_cert is None:
        raise Refused(
            "front.scalerListen needs front.scalerClientCa and front.tlsCert if there "
            "is an access file: KEDA authenticates with a certificate",
            next_step="set both, or leave front.scalerListen empty",
        )
    if front.tls_cert is None or front.tls_key is None:
        return None
    try:
        pair = (
            front.tls_key.expanduser().read_bytes(),
            front.tls_cert.expanduser().read_bytes(),
        )
        authorities = (
            front.scaler_client_ca.expanduser().read_bytes()
            if front.scaler_client_ca
            else None
        )
        if authorities is not None:
            x509.load_pem_x509_certificates(authorities)
    except (OSError, ValueError) as error:
        raise Refused(
            f"front.scalerClientCa, front.tlsCert, front.tlsKey: {error}",
            next_step="set them to PEM files",
        ) from error
    return grpc.ssl_server_credentials(
        [pair], authorities, require_client_auth=authorities is not None
    )


def bind_scaler(front: FrontSettings, server: Any, credentials: Any) -> Any:
    """Bind the external scaler to its address. Raises `Refused`."""
    try:
        if credentials is None:
            server.add_insecure_port(front.scaler_listen)
        else:
            server.add_secure_port(front.scaler_listen, credentials)
    except RuntimeError as error:
        raise Refused(
            f"cannot listen on {front.scaler_listen}",
            next_step="set front.scalerListen to a free address",
        ) from error
    return server
