"""What components stand on: mailboxes, turns, errors."""
