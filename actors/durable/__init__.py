"""What has the queue promised to remember, and what is on disk of it?"""
