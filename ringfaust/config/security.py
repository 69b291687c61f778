"""How a process authenticates to the brokers. The configuration names secrets, and has none."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from ringfaust.config.documents import ConfigError, ConfigModel, Fault, OptionalFile, refuse
from ringfaust.credentials import (
    BadCredentials,
    FileContext,
    FilePassword,
    TokenProvider,
    token_function,
    unusable,
)


class _Secret(str):
    """Text that `repr` hides, so that printed options show no secret."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…hidden…'"


@contextmanager
def _translated() -> Iterator[None]:
    """Raise what is wrong with credentials as an error of the configuration."""
    try:
        yield
    except BadCredentials as error:
        raise ConfigError("worker.yaml", [Fault(f"security.{error.file}", str(error))]) from None


class SecurityConfig(ConfigModel):
    """`security`: how this process authenticates. Names where secrets are, and contains none."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether the connection is encrypted (SSL), and whether there is a password (SASL)."""
    ca_file: OptionalFile = None
    """Certificate authorities that sign the brokers' certificates (PEM). None: the system's."""
    cert_file: OptionalFile = None
    """Certificate of this client (PEM). It needs `key_file`."""
    key_file: OptionalFile = None
    """Key of this client's certificate (PEM), unencrypted."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "PLAIN"
    """How the password is proven to the brokers. OAUTHBEARER needs `token_function` in place of
    user and password."""
    username: str | None = None
    """User of the brokers, with SASL."""
    password_env: str | None = Field(default=None, repr=False)
    """Name of the environment variable that holds the password."""
    password_file: OptionalFile = None
    """File that holds the password, such as a secret of Docker or Kubernetes. A newline at its end
    does not belong to the password. It is read for each new connection, like the certificates."""
    token_function: str | None = None
    """MODULE:FUNCTION that returns a token for OAUTHBEARER, for each new connection.
    `ringfaust.credentials:msk_iam_token` is for Amazon MSK."""

    @field_validator("token_function")
    @classmethod
    def _names_a_function(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[\w.]+:\w+", name):
            raise refuse("must be MODULE:FUNCTION, such as shop.tokens:token")
        return name

    @field_validator("password_env")
    @classmethod
    def _names_a_variable(cls, name: str | None) -> str | None:
        # Do not show the value: it may be the password itself.
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise refuse(
                "must be the name of an environment variable, such as KAFKA_PASSWORD, not the "
                "password itself"
            )
        return name

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> Self:
        tls = [name for name in ("ca_file", "cert_file", "key_file") if getattr(self, name)]
        passwords = [name for name in ("password_env", "password_file") if getattr(self, name)]
        sasl = [*(["username"] if self.username is not None else []), *passwords]
        if tls and "SSL" not in self.protocol.split("_"):
            raise refuse(f"is not used by protocol {self.protocol}; did you mean SSL?", tls[0])
        if sasl and not self.protocol.startswith("SASL"):
            raise refuse(
                f"is not used by protocol {self.protocol}; did you mean SASL_SSL?", sasl[0]
            )
        if len(passwords) > 1:
            raise refuse("password_env and password_file exclude each other: set one of them")
        if self._takes_token:
            if sasl or not self.token_function:
                raise refuse(
                    "OAUTHBEARER needs token_function, and neither user nor password",
                    "sasl_mechanism",
                )
        elif self.token_function:
            raise refuse("is for sasl_mechanism OAUTHBEARER with SASL_SSL", "token_function")
        elif self.protocol.startswith("SASL") and len(sasl) < 2:
            raise refuse(
                f"protocol {self.protocol} needs username, and password_file or password_env"
            )
        if bool(self.cert_file) != bool(self.key_file):
            raise refuse("cert_file and key_file go together: set both or neither")
        return self

    @property
    def _takes_token(self) -> bool:
        return self.protocol.startswith("SASL") and self.sasl_mechanism == "OAUTHBEARER"

    @property
    def description(self) -> str:
        """What a broker that refuses the connection might object to, in words; no secret."""
        parts = [f"protocol {self.protocol}"]
        if self.protocol.startswith("SASL"):
            parts.append("this token" if self._takes_token else "this user and password")
        if self.protocol.endswith("SSL"):
            parts.append("this certificate" if self.cert_file else "no client certificate")
        return " and ".join(parts)

    @_translated()
    def client_options(self) -> dict[str, object]:
        """Return keyword arguments for any aiokafka client. Printing them hides the password.

        Each new connection of the client uses what the files contain by then.

        Raises:
            ConfigError: a certificate cannot be loaded, or there is no password or function where
                the settings say.
        """
        options: dict[str, object] = {"security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            options["ssl_context"] = FileContext(self.ca_file, self.cert_file, self.key_file)
        if self.protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.sasl_mechanism
        if self._takes_token:
            function = token_function(self.token_function or "")
            options["sasl_oauth_token_provider"] = TokenProvider(function)
        elif self.protocol.startswith("SASL"):
            options["sasl_plain_username"] = self.username
            options["sasl_plain_password"] = self._password()
        return options

    @_translated()
    def java_options(self, prefix: str) -> dict[str, str]:
        """Return the same options for Kafka's Java clients, with `prefix` before each name.

        Raises:
            ConfigError: the client's certificate or key cannot be read, Java cannot read its
                format, there is no password where the settings say, or tokens come from Python.
        """
        if self._takes_token:
            text = "Kafka's Java client cannot call it: Spark needs a user of its own, with SCRAM"
            raise BadCredentials("token_function", text)
        options: dict[str, str] = {"security.protocol": self.protocol}
        if self.ca_file:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file)}
        if self.cert_file and self.key_file:
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": _pem("cert_file", self.cert_file),
                "ssl.keystore.key": _pem("key_file", self.key_file, _JAVA_KEY),
            }
        if self.protocol.startswith("SASL"):
            module = "plain.Plain" if self.sasl_mechanism == "PLAIN" else "scram.Scram"
            user, password = map(_jaas_quoted, (self.username or "", self._password()))
            options |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.jaas.config": f"org.apache.kafka.common.security.{module}LoginModule required"
                f" username={user} password={password};",
            }
        return {prefix + name: _Secret(value) for name, value in options.items()}

    def _password(self) -> str:
        if self.password_file:
            return FilePassword(self.password_file)
        password = os.environ.get(self.password_env or "")
        if not password:
            raise BadCredentials(
                "password_env",
                "the environment variable that it names is not set or empty: set it to the "
                "password before you start ringfaust",
            )
        return _Secret(password)


_JAVA_KEY = "-----BEGIN PRIVATE KEY-----"


def _pem(field: str, path: Path, needed: str = "-----BEGIN") -> str:
    """Return the text of a PEM file, or raise a clear error if Java would refuse it."""
    try:
        text = path.read_text("ascii")
    except (OSError, ValueError) as error:
        raise unusable(field, path, error) from None
    if needed not in text:
        advice = (
            f"has no line {needed}, which Kafka's Java client needs; for a key, "
            "`openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW` converts it"
        )
        raise unusable(field, path, ValueError(advice))
    return text


def _jaas_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
