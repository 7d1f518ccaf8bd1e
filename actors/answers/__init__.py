"""What is said of jobs: whole states, waits, reasons, estimates?"""
