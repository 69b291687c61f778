"""The metrics of a job's driver, for Prometheus: served over HTTP until the process ends."""

from __future__ import annotations

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server

from ringfaust.config import WebConfig
from ringfaust.config.hosts import REFUSAL, is_our_host
from ringfaust.errors import RingfaustError, reason_of_system


class MonitorCannotListen(RingfaustError):
    """The job cannot listen where it should serve its metrics. The text says what to change."""


def serve(registry: CollectorRegistry, web: WebConfig, port: int, remedy: str) -> None:
    """Serve the metrics of a registry.

    `remedy` says what to change if that is not possible.

    Raises:
        MonitorCannotListen: the port is in use, or the address is not this machine's.
    """
    try:
        server, _ = start_http_server(port, web.bind, registry)
    except (OSError, UnicodeError) as error:
        raise MonitorCannotListen(
            f"web: cannot listen on {web.bind}, port {port}: {reason_of_system(error)}. {remedy}"
        ) from None
    server.set_app(_for_our_hosts(make_wsgi_app(registry), web))


def _for_our_hosts(pages: WSGIApplication, config: WebConfig) -> WSGIApplication:
    """The pages, for requests that are addressed to this machine by a name of its own."""

    def answer(request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if is_our_host(request.get("HTTP_HOST", ""), config.bind, config.host_names):
            return pages(request, start)
        start("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [REFUSAL.encode()]

    return answer
