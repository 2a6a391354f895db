"""Mutation run: how many small defects, put into the product one at a time, do the tests find? See `make mutants`."""
