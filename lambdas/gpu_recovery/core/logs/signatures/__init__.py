"""Log signatures: one module for each family of causes."""
