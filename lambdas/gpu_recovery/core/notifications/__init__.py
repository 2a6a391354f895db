"""Notifications to operators about jobs, instances, agents and the fleet, all in one form."""
