"""What is true of each job: its row in memory, and how a start reads it?"""
