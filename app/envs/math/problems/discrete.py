"""Number theory, counting, probability and sequences."""

from fractions import Fraction
from math import comb, factorial, gcd, lcm, perm

from app.envs.math.problems.latex import Level, MathProblem, build_problem, rank_level, write_fraction
from app.toolkit.seeded import SeededRandom


def make_common_divisor(draws: SeededRandom, level: Level) -> MathProblem:
    shared = 2 + draws.below((12, 40, 90)[rank_level(level)])
    numbers = [shared * (2 + draws.below((9, 20, 60)[rank_level(level)])) for _ in range(3 if level == "hard" else 2)]
    return build_problem(str(gcd(*numbers)), numbers=", ".join(map(str, numbers)))


def make_common_multiple(draws: SeededRandom, level: Level) -> MathProblem:
    numbers = [2 + draws.below((19, 50, 40)[rank_level(level)]) for _ in range(3 if level == "hard" else 2)]
    return build_problem(str(lcm(*numbers)), numbers=", ".join(map(str, numbers)))


def make_remainder_of_power(draws: SeededRandom, level: Level) -> MathProblem:
    base, modulus = 2 + draws.below((18, 30, 90)[rank_level(level)]), 5 + draws.below((15, 40, 120)[rank_level(level)])
    exponent = 5 + draws.below((20, 200, 2000)[rank_level(level)])
    return build_problem(str(pow(base, exponent, modulus)), power=f"{base}^{{{exponent}}}", modulus=modulus)


def make_inverse(draws: SeededRandom, level: Level) -> MathProblem:
    modulus = (7, 20, 90)[rank_level(level)] + draws.below((20, 70, 300)[rank_level(level)])
    while True:
        number = 2 + draws.below(modulus - 2)
        if gcd(number, modulus) == 1:
            return build_problem(str(pow(number, -1, modulus)), number=number, modulus=modulus)


def make_divisors(draws: SeededRandom, level: Level) -> MathProblem:
    primes = draws.some((2, 3, 5, 7, 11, 13, 17, 19), rank_level(level) + 2)
    powers = [1 + draws.below(3) for _ in primes]
    number, count, total = 1, 1, 1
    for prime, power in zip(primes, powers, strict=True):
        number, count = number * prime**power, count * (power + 1)
        total *= (prime ** (power + 1) - 1) // (prime - 1)
    summed = draws.chance(40)
    what = "sum of all positive divisors" if summed else "number of positive divisors"
    return build_problem(str(total if summed else count), what=what, number=number)


def make_common_remainders(draws: SeededRandom, level: Level) -> MathProblem:
    moduli = draws.some(
        ((3, 4, 5, 7), (5, 7, 8, 9, 11), (7, 8, 9, 11, 13))[rank_level(level)], 3 if level == "hard" else 2
    )
    number = 1 + draws.below(lcm(*moduli) - 1)
    facts = ", ".join(f"{number % modulus} when it is divided by {modulus}" for modulus in moduli)
    return build_problem(str(number), facts=facts)


def make_committee(draws: SeededRandom, level: Level) -> MathProblem:
    """Ways to choose people from two groups; hard: with a minimum from the first group."""
    one, two = 4 + draws.below((5, 8, 12)[rank_level(level)]), 4 + draws.below((5, 8, 12)[rank_level(level)])
    first, second = 1 + draws.below(3), 1 + draws.below(3)
    ways = comb(one, first) * comb(two, second)
    rule = f"{first} of the first group and {second} of the second"
    if level == "hard":
        chosen = first + second
        ways = sum(comb(one, some) * comb(two, chosen - some) for some in range(first, chosen + 1))
        rule = f"{chosen} people, at least {first} of them from the first group"
    return build_problem(str(ways), one=one, two=two, rule=rule)


def make_arrangements(draws: SeededRandom, level: Level) -> MathProblem:
    letters = draws.some("ABCDEFGH", 3 + rank_level(level))
    repeated = [1 + draws.below(3) for _ in letters]
    word = "".join(sorted(letter * often for letter, often in zip(letters, repeated, strict=True)))
    ways = factorial(len(word))
    for often in repeated:
        ways //= factorial(often)
    return build_problem(str(ways), word=word)


def make_ranking(draws: SeededRandom, level: Level) -> MathProblem:
    people, places = 5 + draws.below((30, 60, 90)[rank_level(level)]), 2 + draws.below(rank_level(level) + 2)
    return build_problem(str(perm(people, places)), people=people, places=places)


def make_drawn_balls(draws: SeededRandom, level: Level) -> MathProblem:
    """The probability of given colours when drawing without replacement."""
    red, blue = 2 + draws.below((9, 12, 15)[rank_level(level)]), 2 + draws.below((9, 12, 15)[rank_level(level)])
    count = rank_level(level) + 2
    some = draws.below(min(count, red) + 1)
    some = max(some, count - blue)
    chance = Fraction(comb(red, some) * comb(blue, count - some), comb(red + blue, count))
    return build_problem(write_fraction(chance), red=red, blue=blue, count=count, some=some)


def make_dice(draws: SeededRandom, level: Level) -> MathProblem:
    sides, count = 4 + draws.below((12, 20, 12)[rank_level(level)]), 2 + (level == "hard")
    ways = [1]
    for _ in range(count):
        ways = [sum(ways[max(0, at - sides + 1) : at + 1]) for at in range(len(ways) + sides - 1)]
    totals = [place + count for place in range(len(ways))]
    total = draws.one(totals)
    above = level != "easy" and draws.chance(50) and total < totals[-1]
    good = sum(ways[total - count :]) if above else ways[total - count]
    said = f"at least {total}" if above else f"exactly {total}"
    return build_problem(write_fraction(Fraction(good, sides**count)), sides=sides, count=count, said=said)


def make_arithmetic_series(draws: SeededRandom, level: Level) -> MathProblem:
    first, step = draws.below(40) - 15, (1 + draws.below(12)) * draws.one((1, -1))
    count = (8, 20, 60)[rank_level(level)] + draws.below(30)
    shown = ", ".join(str(first + step * place) for place in range(3))
    return build_problem(str(count * (2 * first + (count - 1) * step) // 2), shown=shown, count=count)


def make_geometric_series(draws: SeededRandom, level: Level) -> MathProblem:
    """The sum of the first terms (easy) or of an infinite series."""
    first = 1 + draws.below(30)
    if level == "easy":
        ratio, count = draws.one((2, 3, -2, 4)), 4 + draws.below(4)
        total = Fraction(first * (ratio**count - 1), ratio - 1)
        shown = ", ".join(str(first * ratio**place) for place in range(3))
        return build_problem(write_fraction(total), shown=shown, count=f"first {count} terms")
    below = 2 + draws.below(6 + 3 * rank_level(level))
    above = (1 + draws.below(below - 1)) * (1 if level == "medium" else draws.one((1, -1)))
    terms = [Fraction(first) * Fraction(above, below) ** place for place in range(3)]
    shown = ", ".join(write_fraction(term) for term in terms)
    return build_problem(
        write_fraction(first / (1 - Fraction(above, below))), shown=shown, count="infinitely many terms"
    )


def make_general_term(draws: SeededRandom, level: Level) -> MathProblem:
    """A formula in n, linear (easy) or quadratic."""
    first, step = draws.below(30) - 10, (1 + draws.below(9)) * draws.one((1, -1))
    bend = 0 if level == "easy" else 1 + draws.below(2 * rank_level(level))
    terms = [bend * n * n + step * n + first for n in range(1, 6)]
    square = "" if not bend else "n^{2}" if bend == 1 else f"{bend}n^{{2}}"
    parts = [square, f"{step}n" if abs(step) > 1 else ("n" if step > 0 else "-n"), str(first) if first else ""]
    said = " + ".join(part for part in parts if part).replace("+ -", "- ")
    return build_problem(said, shown=", ".join(map(str, terms)))
