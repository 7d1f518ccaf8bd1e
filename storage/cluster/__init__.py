"""The cluster's configuration: its objects, their rules, and the questions about them."""
