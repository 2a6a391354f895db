"""The messages operators get: about a job, about an instance, about the fleet, all in one form."""
