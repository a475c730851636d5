"""Whole numbers: their digits, their divisors, how they are written, and sequences of them."""


def digit_powers(number: int, *, base: int, power: int, times: int) -> int:
    for _ in range(times):
        total = 0
        while number:
            total += (number % base) ** power
            number //= base
        number = total
    return number


def halve_or_grow(number: int, *, factor: int, plus: int, most: int, what: str) -> int:
    steps, largest = 0, number
    while number > 1 and steps < most:
        number = number // 2 if number % 2 == 0 else factor * number + plus
        largest = max(largest, number)
        steps += 1
    return number if what == "last" else largest


def write_in_base(number: int, *, base: int, width: int, letters: str, sign: str) -> str:
    left, digits = abs(number), ""
    while left:
        digits = letters[left % base] + digits
        left //= base
    digits = digits.rjust(width, letters[0])
    return sign + digits if number < 0 else digits


def pay_out(amount: int, *, coins: list[int], most: int, rest: str) -> list[int]:
    paid = []
    for coin in coins:
        count = min(amount // coin, most)
        paid.append(count)
        amount -= count * coin
    return [*paid, amount] if rest == "added" else paid if amount == 0 else []


def primes_between(low: int, high: int, *, divisor: int, remainder: int, what: str) -> int:
    fitting = [number for number in range(max(low, 2), high + 1) if number % divisor == remainder]
    primes = [number for number in fitting if all(number % smaller for smaller in range(2, int(number**0.5) + 1))]
    if what == "count":
        return len(primes)
    return sum(primes) if what == "sum" else max(primes, default=0)


def check_digits(digits: str, *, weight: int, modulus: int, side: str, large: str) -> int:
    total = 0
    for place, digit in enumerate(digits if side == "left" else reversed(digits)):
        value = int(digit) * (weight if place % 2 == 0 else 1)
        if value > 9:
            value = value - 9 if large == "minus" else (value // 10) * (value % 10) if large == "product" else value
        total += value
    return -total % modulus


def scale_amounts(amounts: list[int], *, times: int, parts: int, rounding: str) -> list[int]:
    scaled = []
    for amount in amounts:
        whole, rest = divmod(amount * times, parts)
        if rounding == "up":
            whole += rest > 0
        elif rounding == "near":
            whole += 2 * rest > parts
        elif rounding == "even":
            whole += rest > 0 and whole % 2 == 1
        scaled.append(whole)
    return scaled


def next_terms(first: int, second: int, *, one: int, other: int, plus: int, modulus: int) -> list[int]:
    terms = [first % modulus, second % modulus]
    while len(terms) < 10:
        terms.append((one * terms[-1] + other * terms[-2] + plus) % modulus)
    return terms


def steps_until_repeat(start: int, *, factor: int, plus: int, modulus: int, what: str) -> int:
    seen: dict[int, int] = {}
    value = start % modulus
    while value not in seen:
        seen[value] = len(seen)
        value = (value * value + factor * value + plus) % modulus
    return seen[value] if what == "before" else len(seen) if what == "all" else max(seen)


def count_ways(stairs: int, *, steps: list[int], broken: int, order: str) -> int:
    ways = [1] + [0] * stairs
    if order == "any":
        for place in range(1, stairs + 1):
            if place % broken:
                ways[place] = sum(ways[place - step] for step in steps if step <= place)
        return ways[stairs]
    for step in steps:
        for place in range(step, stairs + 1):
            if place % broken:
                ways[place] += ways[place - step]
    return ways[stairs]


def say_again(digits: str, *, times: int, order: str, most: int) -> str:
    for _ in range(times):
        said, place = "", 0
        while place < len(digits):
            end = place
            while end < len(digits) and digits[end] == digits[place] and end - place < most:
                end += 1
            count = str(end - place)
            said += count + digits[place] if order == "count" else digits[place] + count
            place = end
        digits = said
    return digits


def last_ones(people: int, *, step: int, left: int, more: int, start: int) -> list[int]:
    circle = list(range(1, people + 1))
    place = start - 1
    while len(circle) > left:
        place = (place + step - 1) % len(circle)
        circle.pop(place)
        step += more
    return circle
