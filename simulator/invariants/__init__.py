"""What must hold, always: the checks I1 to I11."""
