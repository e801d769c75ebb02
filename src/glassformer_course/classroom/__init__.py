"""For teachers: write assignments for a class, and grade the submissions."""
