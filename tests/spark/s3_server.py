"""A local S3, moto's, in another process: delta-rs holds the GIL while it waits for a store."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "lakes"


@contextmanager
def s3_server() -> Iterator[str]:
    """Start the server, with an empty bucket. Yields its URL."""
    command = [sys.executable, "-m", "tests.spark.s3_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            urlopen(Request(f"{url}/{BUCKET}", method="PUT")).close()
            yield url
        finally:
            process.kill()


def options(url: str) -> tuple[tuple[str, str], ...]:
    """How delta-rs reaches the server."""
    return (
        ("aws_access_key_id", "test"),
        ("aws_secret_access_key", "test"),
        ("aws_region", "us-east-1"),
        ("aws_endpoint_url", url),
        ("aws_allow_http", "true"),
    )


def _serve() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, moto, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
