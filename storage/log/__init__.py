"""What was acknowledged? Checked records in numbered segments."""
