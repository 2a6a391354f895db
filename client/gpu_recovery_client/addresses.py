"""Addresses of a deployment: which hosts can only be this host. Needs no HTTP library."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether `host` can only be this host: 127.0.0.0/8, ::1, localhost and names below it (RFC 6761)."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
