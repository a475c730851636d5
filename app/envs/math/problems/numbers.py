"""Number theory, counting, probability and sequences."""

from fractions import Fraction
from math import comb, factorial, gcd, lcm, perm

from app.envs.math.problems.writing import Asked, Level, asked, fraction, size
from app.toolkit.seeded import Draws


def common_divisor(draws: Draws, level: Level) -> Asked:
    shared = 2 + draws.below((12, 40, 90)[size(level)])
    numbers = [shared * (2 + draws.below((9, 20, 60)[size(level)])) for _ in range(3 if level == "hard" else 2)]
    return asked(str(gcd(*numbers)), numbers=", ".join(map(str, numbers)))


def common_multiple(draws: Draws, level: Level) -> Asked:
    numbers = [2 + draws.below((19, 50, 40)[size(level)]) for _ in range(3 if level == "hard" else 2)]
    return asked(str(lcm(*numbers)), numbers=", ".join(map(str, numbers)))


def remainder_of_power(draws: Draws, level: Level) -> Asked:
    base, modulus = 2 + draws.below((18, 30, 90)[size(level)]), 5 + draws.below((15, 40, 120)[size(level)])
    exponent = 5 + draws.below((20, 200, 2000)[size(level)])
    return asked(str(pow(base, exponent, modulus)), power=f"{base}^{{{exponent}}}", modulus=modulus)


def inverse(draws: Draws, level: Level) -> Asked:
    modulus = (7, 20, 90)[size(level)] + draws.below((20, 70, 300)[size(level)])
    while True:
        number = 2 + draws.below(modulus - 2)
        if gcd(number, modulus) == 1:
            return asked(str(pow(number, -1, modulus)), number=number, modulus=modulus)


def divisors(draws: Draws, level: Level) -> Asked:
    primes = draws.some((2, 3, 5, 7, 11, 13, 17, 19), size(level) + 2)
    powers = [1 + draws.below(3) for _ in primes]
    number, count, total = 1, 1, 1
    for prime, power in zip(primes, powers, strict=True):
        number, count = number * prime**power, count * (power + 1)
        total *= (prime ** (power + 1) - 1) // (prime - 1)
    summed = draws.chance(40)
    what = "sum of all positive divisors" if summed else "number of positive divisors"
    return asked(str(total if summed else count), what=what, number=number)


def common_remainders(draws: Draws, level: Level) -> Asked:
    moduli = draws.some(((3, 4, 5, 7), (5, 7, 8, 9, 11), (7, 8, 9, 11, 13))[size(level)], 3 if level == "hard" else 2)
    number = 1 + draws.below(lcm(*moduli) - 1)
    facts = ", ".join(f"{number % modulus} when it is divided by {modulus}" for modulus in moduli)
    return asked(str(number), facts=facts)


def committee(draws: Draws, level: Level) -> Asked:
    """Ways to choose people from two groups; hard: with a minimum from the first group."""
    one, two = 4 + draws.below((5, 8, 12)[size(level)]), 4 + draws.below((5, 8, 12)[size(level)])
    first, second = 1 + draws.below(3), 1 + draws.below(3)
    ways = comb(one, first) * comb(two, second)
    rule = f"{first} of the first group and {second} of the second"
    if level == "hard":
        chosen = first + second
        ways = sum(comb(one, some) * comb(two, chosen - some) for some in range(first, chosen + 1))
        rule = f"{chosen} people, at least {first} of them from the first group"
    return asked(str(ways), one=one, two=two, rule=rule)


def arrangements(draws: Draws, level: Level) -> Asked:
    letters = draws.some("ABCDEFGH", 3 + size(level))
    repeated = [1 + draws.below(3) for _ in letters]
    word = "".join(sorted(letter * often for letter, often in zip(letters, repeated, strict=True)))
    ways = factorial(len(word))
    for often in repeated:
        ways //= factorial(often)
    return asked(str(ways), word=word)


def ranked(draws: Draws, level: Level) -> Asked:
    people, places = 5 + draws.below((30, 60, 90)[size(level)]), 2 + draws.below(size(level) + 2)
    return asked(str(perm(people, places)), people=people, places=places)


def drawn_balls(draws: Draws, level: Level) -> Asked:
    """The probability of given colours when drawing without replacement."""
    red, blue = 2 + draws.below((9, 12, 15)[size(level)]), 2 + draws.below((9, 12, 15)[size(level)])
    count = size(level) + 2
    some = draws.below(min(count, red) + 1)
    some = max(some, count - blue)
    chance = Fraction(comb(red, some) * comb(blue, count - some), comb(red + blue, count))
    return asked(fraction(chance), red=red, blue=blue, count=count, some=some)


def dice(draws: Draws, level: Level) -> Asked:
    sides, count = 4 + draws.below((12, 20, 12)[size(level)]), 2 + (level == "hard")
    ways = [1]
    for _ in range(count):
        ways = [sum(ways[max(0, at - sides + 1) : at + 1]) for at in range(len(ways) + sides - 1)]
    totals = [place + count for place in range(len(ways))]
    total = draws.one(totals)
    above = level != "easy" and draws.chance(50) and total < totals[-1]
    good = sum(ways[total - count :]) if above else ways[total - count]
    said = f"at least {total}" if above else f"exactly {total}"
    return asked(fraction(Fraction(good, sides**count)), sides=sides, count=count, said=said)


def arithmetic_series(draws: Draws, level: Level) -> Asked:
    first, step = draws.below(40) - 15, (1 + draws.below(12)) * draws.one((1, -1))
    count = (8, 20, 60)[size(level)] + draws.below(30)
    shown = ", ".join(str(first + step * place) for place in range(3))
    return asked(str(count * (2 * first + (count - 1) * step) // 2), shown=shown, count=count)


def geometric_series(draws: Draws, level: Level) -> Asked:
    """The sum of the first terms (easy) or of an infinite series."""
    first = 1 + draws.below(30)
    if level == "easy":
        ratio, count = draws.one((2, 3, -2, 4)), 4 + draws.below(4)
        total = Fraction(first * (ratio**count - 1), ratio - 1)
        shown = ", ".join(str(first * ratio**place) for place in range(3))
        return asked(fraction(total), shown=shown, count=f"first {count} terms")
    below = 2 + draws.below(6 + 3 * size(level))
    above = (1 + draws.below(below - 1)) * (1 if level == "medium" else draws.one((1, -1)))
    terms = [Fraction(first) * Fraction(above, below) ** place for place in range(3)]
    shown = ", ".join(fraction(term) for term in terms)
    return asked(fraction(first / (1 - Fraction(above, below))), shown=shown, count="infinitely many terms")


def general_term(draws: Draws, level: Level) -> Asked:
    """A formula in n, linear (easy) or quadratic."""
    first, step = draws.below(30) - 10, (1 + draws.below(9)) * draws.one((1, -1))
    bend = 0 if level == "easy" else 1 + draws.below(2 * size(level))
    terms = [bend * n * n + step * n + first for n in range(1, 6)]
    square = "" if not bend else "n^{2}" if bend == 1 else f"{bend}n^{{2}}"
    parts = [square, f"{step}n" if abs(step) > 1 else ("n" if step > 0 else "-n"), str(first) if first else ""]
    said = " + ".join(part for part in parts if part).replace("+ -", "- ")
    return asked(said, shown=", ".join(map(str, terms)))
