"""The scoreboard: how right the diagnosis and the health check are on each set of cases whose truth is known."""
