"""What does Ganeti keep on disk: ssconf files, and a state directory that is imported?"""
