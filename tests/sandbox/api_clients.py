"""HTTP clients of a sandbox's job API."""

from __future__ import annotations

from typing import Any

import httpx


def operator(state: dict[str, Any], token: str = "") -> httpx.Client:
    """A client of the API with the operator's token, or another."""
    headers = {"authorization": f"Bearer {token or state['operator_token']}"}
    return httpx.Client(base_url=f"{state['api_url']}/api/v2", headers=headers, timeout=35, trust_env=False)
