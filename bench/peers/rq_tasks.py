"""What RQ's workers run."""


def no_op() -> None:
    """The function of all jobs."""
