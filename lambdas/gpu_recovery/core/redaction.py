"""Redaction of secrets in log lines, so that no e-mail and no table contains them.

A secret is found by its name (`password=`), its place (`https://user:password@host`), its prefix (`ghp_`), or because
it is a long word of random characters. A secret without any of these, such as a short password on a line of its own,
cannot be found.

Python before 3.11.5 matches one character too much if a possessive quantifier repeats a negative lookahead (CPython
issue 100061). The two patterns that need both have an atomic group instead.

No pattern backtracks over a long text: each one looks at a bounded number of characters from each position, so the
time grows in proportion to the length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

STARS = "***"
"""Text that takes the place of a secret."""
RANDOM_WORD_CHARACTERS_MIN = 32
"""Length from which a word may be taken for a random secret."""
CLASS_CHANGES_MIN, CASE_CHANGES_MIN = 0.4, 0.15
"""Least shares of neighbours of another class (capital, small letter, digit) and of another case in a random word.

A random word of letters and digits has 0.62 and 0.35 on average. Paths and names in CamelCase have fewer changes of
class, and the UUID of a GPU has no change of case.
"""
_NAMES = "token|key|secret|password|passwd|passphrase|signature|credential"
_SEPARATOR = r"""\\?["']?+[ \t]{0,8}+[=:][ \t]{0,8}+"""
_NAMED = rf"(?i:{_NAMES}|\bpwd(?!=/))(?i:s?){_SEPARATOR}"
"""A name of a secret and what separates it from the value. `PWD=/root` is a directory."""


@frozen_dataclass()
class SecretForm:
    """A form in which secrets occur in log lines.

    name:       what the form is called.
    expression: the form; its group `secret` is what is replaced.
    example:    a text in this form. The part between « and » is the secret.
    is_secret:  decides whether the text of the group is a secret. By default every text is.
    """

    name: str
    expression: str
    example: str
    is_secret: Callable[[str], bool] = lambda text: True

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression. It is compiled at its first use, because most invocations redact nothing."""
        return _compiled(self.expression)


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def masked(line: str) -> str:
    """Return the line with three stars in place of each secret."""
    for form in FORMS:
        line = form.pattern.sub(partial(_replaced, form), line)
    return line


def _replaced(form: SecretForm, found: re.Match[str]) -> str:
    if not form.is_secret(found["secret"]):
        return found[0]
    start, end = (place - found.start() for place in found.span("secret"))
    return found[0][:start] + STARS + found[0][end:]


def _is_random(word: str) -> bool:
    """Return whether the characters of a word look random. A mangled name of C++, which begins with `_Z`, does not."""
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else "" for c in word]
    pairs = [one + other for one, other in pairwise(kinds) if one and other]
    if len({*kinds} - {""}) < 3 or not pairs or "_Z" in word:
        return False
    changes = sum(pair[0] != pair[1] for pair in pairs)
    of_case = pairs.count("Aa") + pairs.count("aA")
    return changes >= CLASS_CHANGES_MIN * len(pairs) and of_case >= CASE_CHANGES_MIN * len(pairs)


def _prefixed(name: str, prefix: str, rest: str, example: str) -> SecretForm:
    return SecretForm(name, rf"(?<![A-Za-z0-9])(?P<secret>(?:{prefix}){rest})", example)


_WORD = r"[A-Za-z0-9_-]"
FORMS: tuple[SecretForm, ...] = (
    SecretForm(
        "private key block",
        r"-----BEGIN [A-Z0-9 ]{0,40}+-----(?P<secret>(?>(?s:(?!-----END ).){1,8192}))",
        "-----BEGIN RSA PRIVATE KEY-----«MIIEowIBAAKCAQEA»-----END RSA PRIVATE KEY-----",
    ),
    SecretForm(
        "cookie", r"(?i:\bcookie)" + _SEPARATOR + r"(?P<secret>[^\r\n]{1,8192}+)", "Set-Cookie: «session=abc; id=7»"
    ),
    SecretForm(
        "authorization header",
        r"(?i:\bauthorization)" + _SEPARATOR + r"""\\?["']?+(?i:(?:bearer|basic|token|digest)[ \t]{1,8}+)?+"""
        r"""(?P<secret>[^\s"'\\]{1,4096}+)""",
        "authorization: Basic «dXNlcjpwYXNz»",
    ),
    SecretForm(
        "bearer token",
        r"(?i:\bbearer)[ \t]{1,8}+(?P<secret>[A-Za-z0-9._~+/=-]{16,4096}+)",
        "Bearer «abcdefgh.ijklmnop»",
    ),
    SecretForm(
        "named secret in quotes",
        _NAMED + r"""\\?(?P<quote>["'])(?P<secret>(?>(?:\\.|(?!(?P=quote))[^\\\r\n]){1,4096}))""",
        'token="«abc,def ghi»"',
    ),
    SecretForm("named secret", _NAMED + r"""(?P<secret>(?!\\?["'])[^\s&,;]{1,4096}+)""", "api_key: «winter»"),
    SecretForm(
        "option of a command",
        rf"(?<![A-Za-z0-9])--[A-Za-z0-9_-]{{0,40}}?(?i:{_NAMES}|pwd)[ \t]{{1,8}}+(?P<secret>(?!-)[^\s]{{1,4096}}+)",
        "--api-key «winter»",
    ),
    SecretForm(
        "user of a command",
        r"(?<!\S)(?:-u|--user)[ \t=]{1,8}+(?![0-9]{1,10}+:[0-9])[^\s:]{1,128}+:(?P<secret>[^\s]{1,4096}+)",
        "curl -u me:«hunter2» https://h",
    ),
    SecretForm(
        "password in a URL", r"//[^/\s:@]{0,128}+:(?P<secret>[^@\s]{1,512}+)@", "https://me:«hunter2»@host/path"
    ),
    SecretForm("token in a URL", r"(?i:https?)://(?P<secret>[^/\s:@]{1,512}+)@", "https://«winter»@host/path"),
    SecretForm("signature in a query", r"[?&]sig=(?P<secret>[^\s&]{1,4096}+)", "https://h/x?sv=1&sig=«abc%2Bdef»"),
    SecretForm(
        "Slack hook",
        r"hooks\.slack\.com/[a-z]{1,20}+/(?P<secret>[\w/-]{1,256}+)",
        "https://hooks.slack.com/services/«T000/B000/abcdef»",
    ),
    SecretForm(
        "Discord hook",
        r"discord(?:app)?+\.com/api/webhooks/(?P<secret>[\w/-]{1,256}+)",
        "https://discord.com/api/webhooks/«123/abc»",
    ),
    _prefixed("Hugging Face token", "hf_", r"[A-Za-z0-9]{16,128}+", "«hf_abcdefghijklmnopqrst»"),
    _prefixed("GitHub token", "gh[opsur]_", r"[A-Za-z0-9]{16,255}+", "«ghp_abcdefghijklmnopqrst0123»"),
    _prefixed("GitHub fine-grained token", "github_pat_", r"\w{16,255}+", "«github_pat_11AAAAAAA0_abcdefghij»"),
    _prefixed("GitLab token", "gl[a-z]{2,5}-", rf"{_WORD}{{16,255}}+", "«glpat-abcdefghij0123456789»"),
    _prefixed("AWS access key id", "AKIA", r"[A-Z0-9]{16}", "«AKIAIOSFODNN7EXAMPLE»"),
    _prefixed("AWS temporary access key id", "ASIA", r"[A-Z0-9]{16}", "«ASIAIOSFODNN7EXAMPLE»"),
    _prefixed(
        "session of this system",
        "grs_",
        rf"{_WORD}{{16,512}}+\.{_WORD}{{16,64}}+",
        "«grs_eyJ1IjoiYW5hIn0abc.q7Xb2Lm9Zt4Rw8Kc3Vn6Hd»",
    ),
    _prefixed(
        "JSON web token",
        "eyJ",
        rf"{_WORD}{{8,4096}}+\.{_WORD}{{1,4096}}+(?:\.{_WORD}{{0,4096}}+)?+",
        "«eyJhbGciOiJI.eyJzdWIi.abc»",
    ),
    _prefixed("Slack token", "xox[a-z]-|xapp-", rf"{_WORD}{{8,255}}+", "«xoxb-1234567890-abcdef»"),
    _prefixed("OpenAI or Anthropic key", "sk-", rf"{_WORD}{{16,255}}+", "«sk-proj-abcdefghijklmnop»"),
    _prefixed("NVIDIA key", "nvapi-", rf"{_WORD}{{16,255}}+", "«nvapi-abcdefghijklmnop»"),
    _prefixed("Google key", "AIza", rf"{_WORD}{{30,64}}+", "«AIzaabcdefghijklmnopqrstuvwxyz0123456»"),
    _prefixed(
        "package registry token", "npm_|pypi-|dckr_pat_", rf"{_WORD}{{16,255}}+", "«npm_abcdefghijklmnopqrstuvwx»"
    ),
    _prefixed(
        "token of this system",
        "gr[nu]_",
        rf"[0-9a-z]{{12}}_{_WORD}{{66}}",
        "«gru_" + "a" * 12 + "_" + "b" * 66 + "»",
    ),
    SecretForm(
        "random word",
        rf"(?<![A-Za-z0-9+/_-])(?P<secret>[A-Za-z0-9+/_-]{{{RANDOM_WORD_CHARACTERS_MIN},4096}}+=?+=?+)",
        "wrote «q7Xb2Lm9Zt4Rw8Kc3Vn6Hd1Fp5Gs0JyQ»",
        _is_random,
    ),
)
"""Every form that is replaced, in the order of replacement."""
