"""pass@k: the probability that at least one of k attempts at a task passes."""

import math


def estimate_pass_at(k: int, attempts: int, passed: int) -> float:
    """The unbiased estimate of Chen et al. (arXiv 2107.03374): the share of all subsets of `k` attempts with at least
    one pass, 1 - C(n - c, k) / C(n, k). Raises ValueError with fewer than `k` attempts."""
    if not 1 <= k <= attempts:
        raise ValueError(f"pass@{k} cannot be estimated from {attempts} attempts")
    failed = attempts - passed
    return 1.0 - math.prod((failed - place) / (attempts - place) for place in range(k))


def list_reported_k(samples: int) -> tuple[int, ...]:
    """The reported values of k: 1, 2, 4 and so on, and the number of attempts per task."""
    return tuple(sorted({samples, *(2**power for power in range(samples.bit_length()))}))
