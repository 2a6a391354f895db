"""Routes of the job API: one file for each resource."""
