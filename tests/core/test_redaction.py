"""Secrets in log lines: every form is replaced, ordinary lines stay as they are, and long lines cost little."""

from __future__ import annotations

import base64
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.redaction import FORMS, STARS, SecretForm, masked

LINES = [json.loads(text)["line"] for text in (Path(__file__).parent / "logs" / "lines.jsonl").read_text().splitlines()]
LOOKED_AT_MAX = 20_000
"""Characters that a pattern may look at from one position."""
WAYS_MAX = 100
"""Ways in which a pattern may divide the same characters among its repeats, from one position."""
PEM = "MIIEowIBAAKCAQEAwJ7Xb2Lm9Zt4Rw8Kc3Vn6Hd1Fp5Gs0JyQ+a/u7YtT4eRrQ2m"


def expected(text: str) -> str:
    """Replace what stands between « and » by the stars."""
    return re.sub("«.*?»", STARS, text)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_example_of_each_form_is_replaced(form: SecretForm) -> None:
    """By this form itself, and by all forms together; what was replaced stays replaced."""
    for text in (form.example, f"10:00:01 [rank3] error: {form.example}"):
        plain = text.replace("«", "").replace("»", "")
        found = form.pattern.search(plain)
        assert found is not None and f"«{found['secret']}»" in form.example and form.is_secret(found["secret"])
        assert masked(plain) == masked(masked(plain)) == expected(text)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer «hf_abcdefghijklmnopqrstuv»",
        "{'Authorization': 'Bearer «abc123»'}",
        "Authorization: Basic «dXNlcjpodW50ZXIy»",
        "request with Bearer «eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N»",
        "login failed for «hf_AbCdEfGhIjKlMnOpQrSt»",
        "remote: «ghp_16C7e42F292c6912E7710c838347Ae178B4a» is revoked",
        "remote: «github_pat_11ABCDEFG0abcdefghijkl_MnOpQrStUv»",
        "remote: «glpat-XyZ012345678901234ab»",
        "The key «AKIAIOSFODNN7EXAMPLE» does not exist",
        "The key «ASIAIOSFODNN7EXAMPLE» has expired",
        "aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
        "jwt «eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N» rejected",
        "slack said no to «xoxp-123456789012-abcdefABCDEF»",
        "openai: «sk-proj-AbCdEfGhIjKlMnOp» is invalid",
        "mysql --user me --password «hunter2» --host h",
        "run --api-key «abc» --lr 0.1",
        "run --wandb-token «abc»",
        "passwd=«hunter2»",
        "pwd: «hunter2»",
        "PASSWORD='«two words»' at line 3",
        'config: {"db_password": "«a, b; c»", "lr": 0.1}',
        'token="«abc,def»", lr=0.1',
        "cannot clone https://«0123abcd»@git.example.com/me/code",
        "cannot reach redis://:«hunter2»@cache:6379/0",
        "cannot reach https://me:«hunter2»@host/x",
        "Cookie: «session=0a1b; theme=dark»",
        "POST https://hooks.slack.com/services/«T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX» 404",
        "-----BEGIN OPENSSH PRIVATE KEY-----«b3BlbnNzaC1rZXk»",
        f"«{PEM}»",
        "https://b.s3.amazonaws.com/k?X-Amz-Credential=«me/2026»&X-Amz-Signature=«0a1b»&x=1",
        "token=«abc»&user=me",
        "token='«abc cut off",
    ],
)
def test_the_ordinary_forms_of_secrets_are_replaced(text: str) -> None:
    """Those that programs, clients and shells write; the rest of the line can still be read."""
    text += "" if text.count("«") == text.count("»") else "»"
    assert masked(text.replace("«", "").replace("»", "")) == expected(text)


@pytest.mark.parametrize(
    "line",
    [
        "PWD=/root",
        "KeyError: 'loss'",
        "uid 1000: docker run -u 1000:1000 --gpus all",
        "loading --tokenizer gpt2 --key-size=2",
        "ssh://git@github.com/me/code.git",
        "sha256:4c1a2b3d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcdef",
        "commit 4ca429e05150b83514376aaaabbbbccccdddd111",
        "GPU-5fd4a3b1-77f2-9b33-3c5e-0123456789ab fell off",
        "frame #2: _ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
        "arn:aws:ecs:us-east-1:123456789012:container-instance/nwcd-gpu-testing/0123456789abcdef0123456789abcdef",
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_stage4_warpsize2x2x1_tensor16x8x16_kernel",
        "/mnt/FSx/Checkpoints/Run7/Epoch12/Step900/GlobalStep900/Rank0Of64",
        "torch/csrc/distributed/c10d/ProcessGroupNCCLHeartbeatMonitorThread2Timeout",
        "the basic requirements of the bearer are met",
    ],
)
def test_an_ordinary_line_stays_as_it_is(line: str) -> None:
    """A diagnosis needs its hashes, paths, symbols and identifiers."""
    assert masked(line) == line


def test_no_line_of_the_collection_is_changed() -> None:
    """The lines of real failures keep each character, and so the kind that they are classified as."""
    assert len(LINES) > 200
    for line in LINES:
        assert masked(line) == line


def test_a_random_word_is_found_whatever_it_is() -> None:
    """Of a thousand words of letters and digits, and of a key in PEM form, almost none passes."""
    dice = random.Random(1)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    words = ["".join(dice.choices(letters, k=32)) for _ in range(1_000)]
    words += [base64.b64encode(dice.randbytes(48)).decode() for _ in range(1_000)]
    passed = [word for word in words if masked(f"wrote {word}") != f"wrote {STARS}"]
    assert len(passed) <= 30


# -- cost --------------------------------------------------------------------------------------------------------------


def ways(tokens: Any) -> int:
    """Count the ways in which the repeats of a parsed pattern can divide the same characters."""
    count = 1
    for kind, value in tokens:
        name = str(kind)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, body = value
            inner = ways(body)
            assert inner == 1 or most == 1, "a repeat in a repeat tries every division"
            count *= inner * (int(most) - int(least) + 1)
        elif name == "POSSESSIVE_REPEAT":
            assert ways(value[2]) == 1, "a repeat in a repeat tries every division"
        elif name == "ATOMIC_GROUP" and len(value) == 1 and str(value[0][0]) == "MAX_REPEAT":
            # A repeat alone in an atomic group is a possessive repeat.
            assert ways(value[0][1][2]) == 1, "a repeat in a repeat tries every division"
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            count *= ways(value[-1] if name == "SUBPATTERN" else value)
        elif name in ("ASSERT", "ASSERT_NOT"):
            count *= ways(value[1])
        elif name == "BRANCH":
            count *= max(ways(branch) for branch in value[1])
    return count


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_long_line_costs_in_proportion_to_its_length(form: SecretForm) -> None:
    """From each position a pattern looks at a bounded number of characters, in a bounded number of ways."""
    parser: Any = vars(re)["_parser"]
    parsed = parser.parse(form.pattern.pattern, form.pattern.flags)
    assert parsed.getwidth()[1] <= LOOKED_AT_MAX
    assert ways(parsed) <= WAYS_MAX


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "a{0,9}(?:a|b{0,60}){0,9}c", "a*b", "a{0,50}a{0,50}b", "(?>(?:a{0,9}b{0,60}){0,9})c"]
)
def test_a_pattern_that_backtracks_is_noticed(pattern: str) -> None:
    """So the test above can fail."""
    with pytest.raises(AssertionError):
        test_a_long_line_costs_in_proportion_to_its_length(SecretForm("bad", re.compile(pattern), ""))
