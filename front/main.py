"""The `modelplane-front` program: serves the Kubernetes API until a signal stops it."""

import asyncio
import ipaddress
import signal
import socket
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import structlog
from aiohttp import web
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from activities.log import configure_logging
from api_types.sections.front import FrontSettings
from api_types.settings import Settings
from fleet_client.configuration import load_settings
from fleet_client.errors import CommandFailed, Refused
from fleet_client.temporal.connection import connect
from fleet_client.temporal.control_plane import ControlPlane
from fleet_client.temporal.shutdown import exit_failed, exit_process
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.access.files import BadAccessFile, WatchedFile
from front.access.id_tokens import Claims, IdTokens
from front.access.issuer import Issuer, is_issuer
from front.access.limits import Allowance, Limits
from front.access.request_header import Proxies
from front.access.reviews import BadKubeconfig, Reviews, reviews_by
from front.access.signing import Callers
from front.audit.log import AuditLog, Unwritable
from front.commands.routes import Commands
from front.page_data.health import ControlPlaneHealth
from front.page_data.routes import PageData
from front.scaling.external_scaler import server_of
from front.scaling.numbers import Told
from front.scaling.routes import Scaling
from front.scaling.scraping import ScrapeFile, Scraper
from front.serving.app import Front
from front.serving.lobby import Lobby, LobbyListener
from front.serving.receiving import RUNNER_OPTIONS
from front.store.feed import Feed
from front.store.projection import Projection

# Temporal may still be starting when the front starts.
CONNECT_SECONDS = 30.0
# How long a write waits until its object's workflow answers. Each attempt of the query
# takes at most a third of this time. More attempts do not help an overloaded worker.
_READ_WAIT = timedelta(seconds=15)
_SHUTDOWN_SECONDS = 5.0
_KEEPALIVE_SECONDS = 75.0

log = structlog.get_logger("modelplane.front")


def main() -> None:
    """Start the front.

    Exit codes: 0 after a signal, 2 for invalid settings, 6 if Temporal does not answer.
    """
    try:
        settings = load_settings()
        configure_logging(settings.log)
        asyncio.run(_run(settings))
    except CommandFailed as error:
        exit_failed(error)
    exit_process(0)


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await serve(settings, stop)


async def serve(
    settings: Settings, stop: asyncio.Event, listener: socket.socket | None = None
) -> None:
    """Serve until `stop` is set.

    `listener` replaces the address in the settings. Raises `Refused` for settings that
    contradict each other and `Unreachable` if Temporal does not answer.
    """
    host, port = _address(settings.front)
    access = access_of(settings.front, host)
    tls = _tls(settings.front)
    callers = webhook_callers(settings.front)
    credentials = scaler_credentials(settings.front)
    told = Told(timedelta(seconds=settings.front.metrics_max_age))
    projection = Projection()
    scraper = scraper_of(settings.front, told, projection)
    audit_log = _audit_log(settings.front)
    listener = listener or _listener(settings.front, host, port)
    client = await connect(settings, within_seconds=CONNECT_SECONDS)
    plane = ControlPlane(client, settings, _READ_WAIT)
    # Every ControlPlane limits its concurrent queries. The feed has a separate
    # ControlPlane, so objects that answer slowly there do not delay requests.
    feed = Feed(ControlPlane(client, settings), projection)
    lobby = Lobby()
    tasks = [asyncio.create_task(feed.run()), asyncio.create_task(lobby.sweep())]
    if scraper:
        tasks.append(asyncio.create_task(scraper.run()))
    links = {
        "temporalUi": settings.temporal.ui,
        "temporalNamespace": settings.temporal.namespace,
    }
    allowance = _allowance(settings.front)
    front = Front(
        plane,
        projection,
        access,
        links,
        limits=Limits(allowance),
        audit_log=audit_log,
        lobby=lobby,
    )
    page_data = PageData(front, ControlPlaneHealth(client, feed))
    tasks.append(asyncio.create_task(page_data.run()))
    runner = _runner(front, told, callers, page_data)
    await runner.setup()
    scaler: Any = None
    try:
        if settings.front.scaler_listen:
            server = server_of(front, told, allowance)
            scaler = _listening(settings.front, server, credentials)
            await scaler.start()
        site = web.SockSite(runner, LobbyListener(listener, lobby), ssl_context=tls)
        await site.start()
        log.info(
            "serving",
            listen=settings.front.listen,
            temporal=settings.temporal.address,
            tls=tls is not None,
        )
        await stop.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if scaler:
            await scaler.stop(_SHUTDOWN_SECONDS)
        await runner.cleanup()
        access.close()


def _runner(
    front: Front, told: Told, callers: Callers | None, page_data: PageData
) -> web.AppRunner:
    routes = [
        *Scaling(front, told, callers).routes(),
        *Commands(front).routes(),
        *page_data.routes(),
    ]
    options = {
        **RUNNER_OPTIONS,
        "shutdown_timeout": _SHUTDOWN_SECONDS,
        "keepalive_timeout": _KEEPALIVE_SECONDS,
    }
    return web.AppRunner(front.app(routes), access_log=None, **options)


def access_of(front: FrontSettings, host: str) -> AccessControl:
    """Build the access rules from the settings.

    Everybody may do everything if the settings configure neither users nor API servers.
    Raises `Refused`.
    """
    proxies = _proxies(front)
    reviews = _reviews(front)
    rules = None
    if front.access_file or not (proxies or reviews):
        rules = access_rules(front, host)
    authorities: list[x509.Certificate] = []
    if front.client_ca:
        authorities = _authorities("front.clientCa", front.client_ca)
    proxy_keys = [each.public_key() for each in proxies.authorities] if proxies else []
    if any(each.public_key() in proxy_keys for each in authorities):
        raise Refused(
            "front.clientCa and front.requestHeaderCa have an authority in common: "
            "a user with a certificate for the name of an API server could "
            "impersonate every user",
            next_step="sign certificates of users and of API servers with "
            "different authorities",
        )
    return AccessControl(
        rules,
        proxies=proxies,
        reviews=reviews,
        authorities=authorities,
        id_tokens=_id_tokens(front),
    )


def access_rules(front: FrontSettings, host: str) -> AccessRules | None:
    """Read the access file; return None if everybody may do everything.

    Raises `Refused`.
    """
    if front.access_file is not None:
        try:
            return AccessRules(front.access_file)
        except BadAccessFile as error:
            raise Refused(
                f"front.accessFile: {error}",
                next_step="see the example in docs/how-to/front.md",
            ) from error
    if not _is_loopback(host):
        raise Refused(
            f"front.listen is {front.listen}, which other machines can reach, and "
            "without front.accessFile everybody may do everything",
            next_step="set front.accessFile, or listen on 127.0.0.1",
        )
    log.warning(
        "no access file is set: everybody who reaches this address may do everything",
        listen=front.listen,
    )
    return None


def _proxies(front: FrontSettings) -> Proxies | None:
    if front.request_header_ca is None:
        return None
    if front.tls_cert is None or (
        front.access_file is None and not front.review_kubeconfig
    ):
        raise Refused(
            "front.requestHeaderCa needs TLS, because API servers authenticate with "
            "certificates, and a source of rights for their users",
            next_step="set front.tlsCert and front.tlsKey, and "
            "front.reviewKubeconfig or front.accessFile",
        )
    return Proxies(
        _authorities("front.requestHeaderCa", front.request_header_ca),
        frozenset(front.request_header_names),
    )


def _authorities(setting: str, file: Path) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(file.expanduser().read_bytes())
        for each in found:
            each.public_key()
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise Refused(
            f"{setting}: {error}",
            next_step="set it to a PEM file with the certificates of authorities",
        ) from error
    return found


def _id_tokens(front: FrontSettings) -> IdTokens | None:
    if not front.oidc_issuer_url:
        return None
    if not is_issuer(front.oidc_issuer_url):
        raise Refused(
            "front.oidcIssuerUrl is not a safe address: somebody on the network path "
            "could replace the issuer's keys",
            next_step="use an https:// address without user, password, query and "
            "fragment; http:// is allowed for loopback addresses only",
        )
    if not front.oidc_client_id or front.access_file is None:
        raise Refused(
            "front.oidcIssuerUrl needs an audience and an access file; "
            "front.reviewKubeconfig does not apply to bearers of ID tokens",
            next_step="set front.oidcClientId and front.accessFile",
        )
    try:
        tls = (
            ssl.create_default_context(cafile=str(front.oidc_ca_file.expanduser()))
            if front.oidc_ca_file
            else None
        )
    except (OSError, ssl.SSLError) as error:
        raise Refused(
            f"front.oidcCaFile: {error}",
            next_step="set it to a PEM file with the certificates of authorities",
        ) from error
    claims = Claims(
        front.oidc_username_claim,
        front.oidc_username_prefix,
        front.oidc_groups_claim,
        front.oidc_groups_prefix,
        tuple(front.oidc_required_claims.items()),
    )
    return IdTokens(
        Issuer(front.oidc_issuer_url, tls),
        front.oidc_client_id,
        claims,
        front.oidc_signing_algs,
    )


def _reviews(front: FrontSettings) -> Reviews | None:
    if not front.review_kubeconfig:
        return None
    try:
        return reviews_by(front.review_kubeconfig)
    except BadKubeconfig as error:
        raise Refused(
            f"front.reviewKubeconfig: {error}",
            next_step="set it to a kubeconfig file or to `in-cluster`",
        ) from error


def webhook_callers(front: FrontSettings) -> Callers | None:
    """Read the file of callers that sign requests.

    Returns None if the settings name no file. Raises `Refused`.
    """
    if front.webhook_keys is None:
        return None
    if not front.webhook_audience:
        raise Refused(
            "front.webhookKeys needs front.webhookAudience: without an audience, "
            "requests signed for another control plane would be accepted",
            next_step="set front.webhookAudience to the name of this control plane; "
            "docs/how-to/autoscaling.md shows how callers sign it",
        )
    try:
        return Callers(front.webhook_keys, front.webhook_audience)
    except BadAccessFile as error:
        raise Refused(
            f"front.webhookKeys: {error}",
            next_step="see the example in docs/how-to/autoscaling.md",
        ) from error


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
    try:
        tls = (
            ssl.create_default_context(cafile=str(front.scrape_ca_file.expanduser()))
            if front.scrape_ca_file
            else None
        )
    except (OSError, ssl.SSLError) as error:
        raise Refused(
            f"front.scrapeCaFile: {error}",
            next_step="set it to a PEM file with the certificates of authorities",
        ) from error
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
        if not _is_loopback(front.scaler_listen.rpartition(":")[0].strip("[]")):
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


def _listening(front: FrontSettings, server: Any, credentials: Any) -> Any:
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


def _allowance(front: FrontSettings) -> Allowance:
    return Allowance(
        front.requests_per_second,
        front.burst,
        front.max_concurrent_requests,
        front.max_watches,
    )


def _audit_log(front: FrontSettings) -> AuditLog:
    try:
        return AuditLog(front.audit_file)
    except Unwritable as problem:
        raise Refused(
            f"front.auditFile: {problem}",
            next_step="set it to a writable file, or to `-` for standard output",
        ) from problem


def _address(front: FrontSettings) -> tuple[str, int]:
    host, _, port = front.listen.rpartition(":")
    return host.strip("[]"), int(port)


def _listener(front: FrontSettings, host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise Refused(
            f"cannot listen on {front.listen}: {error.strerror}",
            next_step="set front.listen to a free address",
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls(front: FrontSettings) -> ssl.SSLContext | None:
    if (front.tls_cert is None) is not (front.tls_key is None):
        raise Refused(
            "only one of front.tlsCert and front.tlsKey is set, and TLS needs both",
            next_step="set both or none of them",
        )
    if front.client_ca is not None and (
        front.tls_cert is None or front.access_file is None
    ):
        raise Refused(
            "front.clientCa needs TLS and an access file; front.reviewKubeconfig does "
            "not apply to users with certificates",
            next_step="set front.tlsCert and front.tlsKey, and front.accessFile",
        )
    if front.tls_cert is None or front.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(front.tls_cert.expanduser(), front.tls_key.expanduser())
    except (OSError, ssl.SSLError) as error:
        raise Refused(
            f"front.tlsCert, front.tlsKey: {error}",
            next_step="set them to a certificate and its key, both in PEM",
        ) from error
    for setting, file in (
        ("front.clientCa", front.client_ca),
        ("front.requestHeaderCa", front.request_header_ca),
    ):
        if file is None:
            continue
        try:
            context.load_verify_locations(file.expanduser())
        except (OSError, ssl.SSLError) as error:
            raise Refused(
                f"{setting}: {error}",
                next_step="set it to a PEM file with the certificates of authorities",
            ) from error
        # Clients without a certificate may authenticate with a token.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


if __name__ == "__main__":
    main()
