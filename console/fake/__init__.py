"""A server that stands in for a large deployment: the built console, and the routes that it polls."""
