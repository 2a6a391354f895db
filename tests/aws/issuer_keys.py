"""The issuer keys under which the functions of the tests issue tokens, and tokens made up under them."""

from __future__ import annotations

from gpu_recovery.auth.issuer_tag import add_tag
from gpu_recovery.auth.key_derivation import derive_key
from gpu_recovery.auth.tokens import TokenKind
from gpu_recovery.job_api.pagination import CURSOR_KEY_LABEL

from tests.aws.environment import FUNCTION

NODE_KEY = derive_key(f"secret of {FUNCTION['NODE_TOKEN_KEY_SECRET']}", TokenKind.NODE.key_label)
USER_KEY = derive_key(f"secret of {FUNCTION['SIGNING_KEY_SECRET']}", TokenKind.USER.key_label)
CURSOR_KEY = derive_key(f"secret of {FUNCTION['SIGNING_KEY_SECRET']}", CURSOR_KEY_LABEL)


def tagged(key: bytes, kind: TokenKind, number: int, secret: str = "s" * 43) -> str:
    """A token with the right tag, whether or not it was issued."""
    return add_tag(key, f"{kind.prefix}{number:012d}_{secret}")


def invented(kind: TokenKind, number: int) -> str:
    """A token of the present form that nobody issued."""
    return tagged(b"a key of nobody", kind, number)
