"""A local S3, moto's, as a process of its own: delta-rs holds the GIL while it waits for a store.

If a table's path contains LOST, its first commit after it was created is carried out, but the
answer gets lost.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "lakes"
LOST = "answer-is-lost"


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
    lost: set[str] = set()

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        is_lost = LOST in path and path.endswith("/00000000000000000001.json")
        if environ["REQUEST_METHOD"] == "PUT" and is_lost and path not in lost:
            lost.add(path)
            list(moto(environ, lambda *_: None))
            start_response("500 Internal Server Error", [("Content-Length", "0")])
            return []
        answer: Iterable[bytes] = moto(environ, start_response)
        return answer

    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
