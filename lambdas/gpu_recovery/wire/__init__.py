"""JSON shapes of records as API clients see them."""
