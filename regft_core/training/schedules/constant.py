"""The rate stays as it is after warm-up."""


def factor(progress: float) -> float:
    return 1.0
