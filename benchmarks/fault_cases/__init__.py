"""Injected faults, by family, with which a diagnosis is measured.

The cases are made from the mechanisms of the faults and not from the rules of the diagnosis. A case that is diagnosed
wrongly stays in the table.
"""
