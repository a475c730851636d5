"""pass@k: how likely at least one of k attempts at a task passes."""

import math


def pass_at(k: int, attempts: int, passed: int) -> float:
    """The unbiased estimate of Chen et al. (arXiv 2107.03374): of all ways to take `k` of the attempts, the share with
    one that passed, 1 - C(n - c, k) / C(n, k). ValueError below `k` attempts, which cannot tell."""
    if not 1 <= k <= attempts:
        raise ValueError(f"pass@{k} cannot be told from {attempts} attempts")
    failed = attempts - passed
    return 1.0 - math.prod((failed - place) / (attempts - place) for place in range(k))


def rungs(samples: int) -> tuple[int, ...]:
    """The k that are reported for so many attempts at each task: 1, 2, 4 and so on, and all of them."""
    return tuple(sorted({samples, *(2**power for power in range(samples.bit_length()))}))
