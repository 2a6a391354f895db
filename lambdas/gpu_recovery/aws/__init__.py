"""Adapters to AWS: event parsers, the store on DynamoDB, and actions. Only this package imports boto3.

Every function imports this package at its start. The garbage collector then runs less often: imports, and lists of
thousands of records, make many objects, and next to none of them is garbage. With Python's own threshold the collector
ran forty times at a cold start.
"""

from __future__ import annotations

import gc

COLLECT_AFTER = 100_000
"""New objects, less the removed ones, after which the garbage collector looks for garbage. A few MB of memory."""

gc.set_threshold(COLLECT_AFTER)
