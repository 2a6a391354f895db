"""User agents of botocore's requests, cleaned once for each text.

botocore cleans the same hundred words for each request, which takes a twentieth of the processor time of a test that
makes many calls.
"""

from __future__ import annotations

from functools import cache

from botocore import useragent

useragent.sanitize_user_agent_string_component = cache(useragent.sanitize_user_agent_string_component)
