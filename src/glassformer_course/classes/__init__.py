"""For teachers: assignments for a class, and marks for what it hands in."""
