"""What does a component stand on: mailboxes, turns, errors?"""
