"""Jobs on a Ray cluster: a pool of its own, whose machines we neither count, check nor repair."""
