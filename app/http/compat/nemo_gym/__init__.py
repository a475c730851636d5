"""NeMo Gym's resources server: its agents play our tasks, and every reply is scored in its group."""
