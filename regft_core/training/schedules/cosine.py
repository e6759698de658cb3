"""The rate follows half a cosine to 0."""

import math


def factor(progress: float) -> float:
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))
