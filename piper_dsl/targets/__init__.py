"""What executes a Program: one process, or Ray actors."""
