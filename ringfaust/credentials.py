"""Credentials of Kafka clients that are read when they are used, so that they can change.

They are options of aiokafka's clients. Each new connection uses what the files contain by then, and
a token of its own::

    client_options = {
        "security_protocol": "SASL_SSL",
        "ssl_context": FileContext(ca_file, cert_file, key_file),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "rings",
        "sasl_plain_password": FilePassword(password_file),
    }
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from aiokafka import conn
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from ringfaust.errors import MissingExtra, RingfaustError

log = logging.getLogger(__name__)

Token = Callable[[], str | Awaitable[str]]
"""Returns a token; a plain function runs in a thread and may take a while."""


class BadCredentials(RingfaustError):
    """A file of credentials, or what should return a token, cannot be used. The text says which.

    Attributes:
        file: the setting that names it, such as `ca_file`, `password_file` or `token_function`.
    """

    def __init__(self, file: str, text: str) -> None:
        super().__init__(text)
        self.file = file


class FilePassword(str):
    """The password in a file. `repr` hides it.

    Args:
        path: the file; a newline at its end does not belong to the password.

    Raises:
        BadCredentials: the file cannot be read, or is empty.
    """

    __slots__ = ("_path",)
    _path: Path

    def __new__(cls, path: Path) -> Self:
        """Read it for the first time."""
        conn.SaslPlainAuthenticator = _PlainAuthenticator
        password = super().__new__(cls, _password_in(path))
        password._path = path  # noqa: SLF001 - its own
        return password

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return the present password: with SCRAM, aiokafka encodes it for each new connection."""
        try:
            return _password_in(self._path).encode(encoding, errors)
        except BadCredentials as error:
            log.warning("the password that was read before is used: %s", error)
            return super().encode(encoding, errors)

    def __repr__(self) -> str:
        return "'…hidden…'"


class _PlainAuthenticator(conn.SaslPlainAuthenticator):  # type: ignore[misc]
    """PLAIN with the present password: aiokafka's own joins it to the user's name."""

    def __init__(self, *, sasl_plain_password: str, **more: Any) -> None:
        if isinstance(sasl_plain_password, FilePassword):
            sasl_plain_password = sasl_plain_password.encode().decode()
        super().__init__(sasl_plain_password=sasl_plain_password, **more)


class FileContext(ssl.SSLContext):
    """Certificates in files, for TLS.

    Args:
        ca_file: authorities that sign the brokers' certificates (PEM); None: the system's.
        cert_file: certificate of this client (PEM).
        key_file: its key (PEM), unencrypted.

    Raises:
        BadCredentials: a file cannot be loaded.
    """

    def __new__(cls, *_: Path | None) -> Self:
        """Create it, without any certificates of its own."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(
        self,
        ca_file: Path | None = None,
        cert_file: Path | None = None,
        key_file: Path | None = None,
    ) -> None:
        self._files = (ca_file, cert_file, key_file)
        self._changed = self._stamps()
        self._loaded = self._load()

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Begin a connection, as asyncio does, with the certificates that the files have now."""
        changed = self._stamps()
        if changed != self._changed:
            try:
                self._loaded, self._changed = self._load(), changed
            except BadCredentials as error:
                log.warning("the certificates that were read before are used: %s", error)
        return self._loaded.wrap_bio(*arguments, **named)

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(each) for each in self._files]

    def _load(self) -> ssl.SSLContext:
        ca_file, cert_file, key_file = self._files
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ValueError) as error:
            raise unusable("ca_file", ca_file, error) from None
        if cert_file:
            try:
                # With an empty password, an encrypted key is an error instead of a prompt.
                context.load_cert_chain(cert_file, key_file, password="")
            except (OSError, ValueError) as error:
                # It may concern either: the error does not say which.
                files = f"{cert_file} with key {key_file or cert_file}"
                raise unusable("cert_file", files, error) from None
        return context


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """A token for each new connection, for `sasl_mechanism` OAUTHBEARER.

    Args:
        token: returns it.
    """

    def __init__(self, token: Token) -> None:
        self._token = token

    async def token(self) -> str:
        """Return a token.

        Raises:
            BadCredentials: by the function, if it will never return one.
            KafkaError: the function failed. A Kafka client tries that again, and no other error.
        """
        try:
            if inspect.iscoroutinefunction(self._token):
                return str(await self._token())
            return str(await asyncio.to_thread(self._token))
        except BadCredentials:
            raise
        except Exception as error:
            raise KafkaError(f"{self!r} failed: {error!r}") from error

    def __repr__(self) -> str:
        return f"<tokens of {getattr(self._token, '__qualname__', self._token)}>"


def msk_iam_token() -> str:
    """Return a token for Amazon MSK, of the default AWS credentials, for the region `AWS_REGION`.

    Raises:
        BadCredentials: there is no region, or the extra `msk` is not installed.
    """
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        text = "the environment variable AWS_REGION is not set: set it to the region of the brokers"
        raise BadCredentials("token_function", text)
    try:
        signer = importlib.import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    except ImportError:
        missing = MissingExtra("A token for MSK", ["aws_msk_iam_sasl_signer"], "msk")
        raise BadCredentials("token_function", str(missing)) from None
    token, _ = signer.generate_auth_token(region)
    return str(token)


def token_function(name: str) -> Token:
    """Return the function that MODULE:FUNCTION names.

    Raises:
        BadCredentials: there is no such function, or it takes arguments.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
        inspect.signature(found).bind()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        text = f"{name} is not a function without arguments that can be imported: {error}"
        raise BadCredentials("token_function", text) from None
    result: Token = found
    return result


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written; None: there is none."""
    try:
        found = path.stat() if path else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size) if found else None


def _password_in(path: Path) -> str:
    try:
        password = path.read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise unusable("password_file", path, ValueError("not UTF-8 text")) from None
    except OSError as error:
        raise unusable("password_file", path, error) from None
    if not password:
        raise unusable("password_file", path, ValueError("the file is empty"))
    return password


def unusable(file: str, path: Path | str | None, error: Exception) -> BadCredentials:
    """The error for a file that cannot be read or loaded; `file`: the setting that names it."""
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
    return BadCredentials(file, f"{path}: {reason}")
