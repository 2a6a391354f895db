"""What a line of a log says is wrong, and whether it is the cause: pure rules over text."""
