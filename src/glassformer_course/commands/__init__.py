"""Commands of the course: `glass learn` with its bug lab and its actions for teachers."""
