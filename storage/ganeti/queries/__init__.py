"""What Ganeti's clients ask for: the fields of its objects, and who refers to whom."""
