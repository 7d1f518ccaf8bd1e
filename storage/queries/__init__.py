"""What queries answer: one table of fields per resource, and the rules that all share."""
