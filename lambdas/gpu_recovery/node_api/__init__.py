"""The node API: heartbeats, reports of agents and reports of training programs."""
