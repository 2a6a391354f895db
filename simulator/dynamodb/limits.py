"""Limits of DynamoDB that the double enforces.

Source: "Constraints in Amazon DynamoDB" and the API reference, as of November 2026. 1 KB is 1,024 bytes.
"""

from __future__ import annotations

KB = 1024
MB = 1024 * KB
ITEM_BYTES_MAX = 400 * KB
"""Size of an item, attribute names included."""
PARTITION_KEY_BYTES_MAX = 2_048
SORT_KEY_BYTES_MAX = 1_024
EXPRESSION_BYTES_MAX = 4 * KB
"""Length of an expression string."""
OPERATORS_MAX = 300
"""Operators and functions of an expression. The `=` of SET is no operator."""
IN_OPERANDS_MAX = 100
NAME_BYTES_MAX = 255
"""Length of an expression attribute name or value placeholder."""
SUBSTITUTIONS_BYTES_MAX = 2 * MB
"""All names and values of the placeholders of a request together."""
DEPTH_MAX = 32
"""Levels of nested lists and maps."""
DIGITS_MAX = 38
"""Significant digits of a number."""
EXPONENT_MAX = 125
"""Largest decimal exponent of a number, 9.99E+125. The smallest is EXPONENT_MIN."""
EXPONENT_MIN = -130
PAGE_BYTES_MAX = MB
"""Data that Query and Scan read for one page."""
BATCH_GET_KEYS_MAX = 100
BATCH_GET_BYTES_MAX = 16 * MB
BATCH_WRITE_ITEMS_MAX = 25
TRANSACTION_ACTIONS_MAX = 100
TRANSACTION_BYTES_MAX = 4 * MB
