"""The commands of the course: `glass learn`, its bug lab, and its part for teachers."""
