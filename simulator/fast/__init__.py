"""Speed-ups of long simulations that do not change the outcome."""
