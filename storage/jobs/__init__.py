"""What is a job: its statuses and their table, its bounds, its forms?"""
