"""What makes long simulations faster without changing their outcome."""
