"""Log classification: which lines of a log report an error, and which line is the cause. Pure rules over text."""
