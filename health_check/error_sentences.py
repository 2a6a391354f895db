"""The errors of DCGM by their sentences, for documents of DCGM 3 that print no error ids. Pure.

The sentences are the messages of `dcgmlib/dcgm_errors.h` (github.com/NVIDIA/DCGM) and the text of the CUDA error
`cudaErrorECCUncorrectable` (CUDA Runtime API, "Error handling"). DCGM appends its suggestion to a message. Only
sentences that NVIDIA documents are here: a failed test with any other sentence stays a failure of unknown severity.
"""

from __future__ import annotations

import re

_SENTENCES = (
    (r"detected \d{1,9} volatile double-bit ecc error\(s\) in gpu \d", 4),
    (r"pending retired page has been detected in gpu \d", 6),
    (r"\d{1,9} or more retired pages have been detected in gpu \d", 7),
    (r"excess of \d{1,9} retired pages due to dbes have been detected", 8),
    (r"corrupt inforom has been detected in gpu \d", 9),
    (r"detected fatal errors on nvswitch \d", 15),
    (r"persistence mode for gpu \d{1,4} is disabled", 29),
    (r"found \d{1,9} faulty memory elements on gpu \d", 52),
    (r"couldn't allocate at least \d{1,3}(?:\.\d{1,6})?% of gpu memory on gpu \d", 56),
    (r"cuda apis have indicated that a double-bit ecc error has occur{1,2}ed on gpu \d", 57),
    (r"uncorrectable ecc error encountered", 57),
    (r"memory mismatch was detected on gpu \d", 58),
    (r"detected a miscompare failure in the l1 cache", 79),
    (r"gpu \d{1,4} had uncorrectable memory errors and row remapping failed", 80),
    (r"gpu had an uncontained error \(xid 95\)", 81),
    (r"pending page retirements together with a dbe were detected on gpu \d", 83),
    (r"gpu \d{1,4} had uncorrectable memory errors and \d{1,9} rows were remapped", 84),
    (r"gpu \d{1,4} ha[ds] (?:uncorrectable )?memory errors and row remappings are pending", 85),
    (r"gpu \d{1,4} was unsuccessfully written to in a peer-to-peer test", 86),
    (r"gpu \d{1,4} unsuccessfully wrote data in a peer-to-peer test", 87),
    (r"detected [1-9]\d{0,9} ecc_dbe_(?:volatile|aggregate)_total for gpu \d", 103),
    (r"detected fatal nvswitch sxid \d", 109),
)
_PATTERNS = tuple((re.compile(pattern), error_id) for pattern, error_id in _SENTENCES)


def error_id_of(message: str) -> int | None:
    """Return DCGM's id of the error that a message describes; None for a sentence that is not documented."""
    text = message.casefold()
    return next((error_id for pattern, error_id in _PATTERNS if pattern.search(text)), None)
