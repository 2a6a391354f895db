"""What the agent sees, one file for each source. A source that says nothing is a fact, never an error of the agent."""
