"""Text and tables that the command line prints."""
