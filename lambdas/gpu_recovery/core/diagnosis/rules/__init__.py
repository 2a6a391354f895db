"""The rules, one file for each family of mechanisms. Each file ends with its `RULES`."""
