"""Lists of numbers: chosen from, cut up, added up, looked through."""


def keep_every(items: list[int], *, step: int, first: int, order: str) -> list[int]:
    kept = items[first - 1 :: step]
    return kept[::-1] if order == "reversed" else kept


def sum_where(numbers: list[int], *, divisor: int, remainder: int, least: int, what: str) -> int:
    chosen = [number for number in numbers if number % divisor == remainder and number >= least]
    if what == "count":
        return len(chosen)
    return sum(chosen) if what == "sum" else max(chosen, default=0)


def running_total(numbers: list[int], *, limit: int, after: str, start: int) -> list[int]:
    totals, total = [], start
    for number in numbers:
        total += number
        totals.append(total)
        if total > limit:
            total = 0 if after == "zero" else total - limit if after == "rest" else start
    return totals


def rotate_from(items: list[int], *, by: int, way: str, start: int) -> list[int]:
    fixed, turned = items[:start], items[start:]
    if not turned:
        return items[:]
    places = by % len(turned)
    cut = places if way == "left" else len(turned) - places
    return fixed + turned[cut:] + turned[:cut]


def nth_extreme(numbers: list[int], *, rank: int, which: str, equal: str, missing: int) -> int:
    ranked = sorted(numbers if equal == "each" else set(numbers), reverse=which == "largest")
    return ranked[rank - 1] if len(ranked) >= rank else missing


def fold_chunks(numbers: list[int], *, size: int, what: str, rest: str) -> list[int]:
    folded = []
    for start in range(0, len(numbers), size):
        chunk = numbers[start : start + size]
        if len(chunk) < size and rest == "dropped":
            continue
        if what == "difference":
            folded.append(chunk[0] - chunk[-1])
        else:
            folded.append(sum(chunk) if what == "sum" else max(chunk) if what == "max" else min(chunk))
    return folded


def keep_few_alike(numbers: list[int], *, divisor: int, most: int, which: str) -> list[int]:
    seen: dict[int, int] = {}
    kept = []
    for number in numbers if which == "first" else reversed(numbers):
        kind = number % divisor
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= most:
            kept.append(number)
    return kept if which == "first" else kept[::-1]


def take_in_turns(one: list[int], other: list[int], *, from_one: int, from_other: int, rest: str) -> list[int]:
    taken: list[int] = []
    left, right = one[:], other[:]
    while left and right:
        taken += left[:from_one] + right[:from_other]
        left, right = left[from_one:], right[from_other:]
    remaining = left + right
    if rest == "dropped":
        return taken
    return taken + (remaining if rest == "kept" else remaining[::-1])


def local_extremes(numbers: list[int], *, radius: int, which: str, edges: str, equal: bool) -> list[int]:
    found = []
    for place, number in enumerate(numbers):
        if edges == "left out" and not radius <= place < len(numbers) - radius:
            continue
        near = numbers[max(0, place - radius) : place] + numbers[place + 1 : place + radius + 1]
        signed = [(number - one) if which == "peak" else (one - number) for one in near]
        if all(one > 0 or (equal and one == 0) for one in signed):
            found.append(place)
    return found


def longest_streak(numbers: list[int], *, rule: str, bound: int, ties: str) -> list[int]:
    best = [0, 0]
    start = 0
    for place in range(1, len(numbers) + 1):
        if place < len(numbers):
            change = numbers[place] - numbers[place - 1]
            goes_on = {"rise": change >= bound, "fall": -change >= bound, "near": abs(change) <= bound}[rule]
            if goes_on:
                continue
        length = place - start
        if length > best[1] or (length == best[1] and ties == "last"):
            best = [start, length]
        start = place
    return best


def count_stretches(numbers: list[int], *, divisor: int, remainder: int, least: int) -> int:
    count = 0
    for start in range(len(numbers)):
        total = 0
        for end in range(start, len(numbers)):
            total += numbers[end]
            if end - start + 1 >= least and total % divisor == remainder:
                count += 1
    return count


def best_window(numbers: list[int], *, size: int, step: int, which: str, ties: str) -> int:
    best, place = 0, -1
    for start in range(0, len(numbers) - size + 1, step):
        total = sum(numbers[start : start + size])
        if which == "smallest":
            total = -total
        if place < 0 or total > best or (total == best and ties == "last"):
            best, place = total, start
    return place


def count_pairs(numbers: list[int], *, gap: int, target: int, what: str) -> int:
    count = 0
    for place, one in enumerate(numbers):
        for other in numbers[place + 1 : place + 1 + gap]:
            value = one + other if what == "sum" else abs(one - other)
            count += value == target
    return count


def bucket_numbers(numbers: list[int], *, width: int, what: str, label: str) -> dict[str, int]:
    buckets: dict[str, int] = {}
    for number in numbers:
        start = number // width * width
        name = f"{start}-{start + width - 1}" if label == "range" else f"from {start}"
        if what == "max":
            buckets[name] = max(buckets.get(name, number), number)
        else:
            buckets[name] = buckets.get(name, 0) + (number if what == "sum" else 1)
    return buckets


def split_evenly(numbers: list[int], *, factor: int, ties: str, least: int) -> int:
    best, place = 0, -1
    for cut in range(least, len(numbers) - least + 1):
        distance = abs(factor * sum(numbers[:cut]) - sum(numbers[cut:]))
        if place < 0 or distance < best or (distance == best and ties == "last"):
            best, place = distance, cut
    return place
