"""The rate falls to 0 in proportion to the steps."""


def factor(progress: float) -> float:
    return max(0.0, 1.0 - progress)
