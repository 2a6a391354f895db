"""The only importer of boto3: events in, records kept, actions out."""
