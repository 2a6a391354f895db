"""Jobs on a Ray cluster: a separate pool, which this system neither checks nor repairs."""
