"""Key derivation (HKDF, RFC 5869): a key of its own for each purpose of a secret."""

from __future__ import annotations

import hashlib
import hmac

_SALT = bytes(hashlib.sha256().digest_size)


def derive_key(secret: str, label: str) -> bytes:
    """Return the key of one purpose: 32 bytes, HKDF with SHA-256.

    The keys of two labels are independent. A key does not lead back to the secret, if the secret cannot be guessed.

    Args:
        secret: the secret, with at least as much randomness as the key is to have.
        label: the purpose of the key, such as "cursor".
    """
    extracted = hmac.new(_SALT, secret.encode(), hashlib.sha256).digest()
    return hmac.new(extracted, f"gpu-recovery {label}".encode() + b"\x01", hashlib.sha256).digest()
