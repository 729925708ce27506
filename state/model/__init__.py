"""What State is made of: what was seen, rows, columns, trial, policy, diagnoses, limits."""
