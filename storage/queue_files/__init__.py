"""What lies in the queue directory: jobs, their replay, and what lies beside them?"""
