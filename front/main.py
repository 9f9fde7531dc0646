"""The `modelplane-front` program: serves the Kubernetes API until a signal stops it."""

import asyncio
import signal
import socket
from datetime import timedelta
from typing import Any

import structlog
from aiohttp import web

from activities.log import configure_logging
from api_types.sections.front import FrontSettings
from api_types.settings import Settings
from fleet_client.configuration import load_settings
from fleet_client.errors import CommandFailed, Refused
from fleet_client.temporal.connection import connect
from fleet_client.temporal.control_plane import ControlPlane
from fleet_client.temporal.shutdown import exit_failed, exit_process
from front.access.limits import Allowance, Limits
from front.access.signing import Callers
from front.audit.log import AuditLog, Unwritable
from front.commands.routes import Commands
from front.configuration.authorities import client_tls
from front.configuration.listening import address_of, listener_of, server_tls
from front.configuration.scaling import bind_scaler, scaler_credentials, scraper_of
from front.configuration.users import access_of, webhook_callers
from front.page_data.health import ControlPlaneHealth
from front.page_data.placement import PlacementData
from front.page_data.prometheus import Traffic
from front.page_data.routes import PageData
from front.page_data.traffic import TrafficData
from front.scaling.external_scaler import server_of
from front.scaling.numbers import Told
from front.scaling.routes import Scaling
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
    host, port = address_of(settings.front)
    access = access_of(settings.front, host)
    tls = server_tls(settings.front)
    callers = webhook_callers(settings.front)
    credentials = scaler_credentials(settings.front)
    told = Told(timedelta(seconds=settings.front.metrics_max_age))
    projection = Projection()
    scraper = scraper_of(settings.front, told, projection)
    prometheus_tls = client_tls(
        "front.prometheusCaFile", settings.front.prometheus_ca_file
    )
    traffic = Traffic(settings.front.prometheus_url, prometheus_tls)
    audit_log = _audit_log(settings.front)
    listener = listener or listener_of(settings.front, host, port)
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
    runner = _runner(front, told, callers, page_data, traffic)
    await runner.setup()
    scaler: Any = None
    try:
        if settings.front.scaler_listen:
            server = server_of(front, told, allowance)
            scaler = bind_scaler(settings.front, server, credentials)
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
    front: Front,
    told: Told,
    callers: Callers | None,
    page_data: PageData,
    traffic: Traffic,
) -> web.AppRunner:
    routes = [
        *Scaling(front, told, callers).routes(),
        *Commands(front).routes(),
        *page_data.routes(),
        *PlacementData(front).routes(),
        *TrafficData(front, traffic).routes(),
    ]
    options = {
        **RUNNER_OPTIONS,
        "shutdown_timeout": _SHUTDOWN_SECONDS,
        "keepalive_timeout": _KEEPALIVE_SECONDS,
    }
    return web.AppRunner(front.app(routes), access_log=None, **options)


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


if __name__ == "__main__":
    main()
