"""`web.oidc`: logging in to the console through an OpenID Connect provider."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, model_validator

from ringfaust.config.documents import ConfigModel, OptionalFile, refuse, shown


def http_url(text: str) -> str:
    """Check that a text is an address.

    Raises:
        PydanticCustomError: it is none.
    """
    try:
        is_url = re.fullmatch(r"https?://[^/\s?#]+[^\s?#]*", text) and urlsplit(text).port != 0
    except ValueError:  # a port or an address of IPv6 that does not exist
        is_url = False
    if not is_url:
        # Do not show the value: it may contain a password.
        raise refuse("must be an address such as http://registry:8081")
    return text


class OidcConfig(ConfigModel):
    """`web.oidc`: logging in to the console through an OpenID Connect provider.

    Needs `ringfaust[oidc]` and `web.public_url`. The provider sends users back to
    `PUBLIC_URL/console/oidc/callback`.
    """

    issuer: Annotated[str, AfterValidator(http_url)] | None = None
    """The provider's address, as its tokens name it. Without one there is no such login."""
    client_id: str = ""
    """What the provider calls this console."""
    client_secret_file: OptionalFile = None
    """File with the secret that the provider has given it. None: it is a public client."""
    scope: str = "openid profile email"
    """What the provider is asked for, separated by spaces."""
    claim: str = "groups"
    """The claim of the ID token that decides about the role: text, or a list of texts. With
    `email`, the roles below are lists of users, whose address the provider must have verified."""
    change: str = ""
    """Values of the claim that allow changes, separated by commas."""
    read: str = ""
    """Values of the claim that allow to read, separated by commas; `*`: any user whom the provider
    lets in."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.issuer is None:
            return self
        if not self.client_id:
            raise refuse("is required with an issuer: the provider's name for it", "client_id")
        if not (self.changers or self.readers):
            raise refuse("with neither read nor change, nobody can log in: name a value", "read")
        if "openid" not in self.scope.split():
            raise refuse(f"{shown(self.scope)} lacks openid", "scope")
        return self

    @property
    def changers(self) -> Collection[str]:
        """The values in `change`."""
        return _values(self.change)

    @property
    def readers(self) -> Collection[str]:
        """The values in `read`."""
        return _values(self.read)


def _values(text: str) -> frozenset[str]:
    return frozenset(each.strip() for each in text.split(",") if each.strip())
