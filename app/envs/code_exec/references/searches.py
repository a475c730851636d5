"""The best of many: routes, orders, choices; and what intervals cover."""


def reach_within(roads: list[list[str]], start: str, *, most: int, way: str, order: str) -> list[str]:
    reached = {start: 0}
    for step in range(1, most + 1):
        near = [place for place, steps in reached.items() if steps == step - 1]
        for one, other in roads:
            if one in near and way != "backwards":
                reached.setdefault(other, step)
            if other in near and way != "forwards":
                reached.setdefault(one, step)
    if order == "name":
        return sorted(reached)
    return sorted(reached, key=lambda place: (reached[place] if order == "near" else -reached[place], place))


def order_tasks(needs: dict[str, list[str]], *, first: str, stuck: str, most: int) -> list[list[str]]:
    left = {task: list(needed) for task, needed in needs.items()}
    for needed in needs.values():
        for task in needed:
            left.setdefault(task, [])
    days: list[list[str]] = []
    while left:
        ready = sorted((task for task, needed in left.items() if not needed), reverse=first == "last")[:most]
        if not ready:
            return [] if stuck == "nothing" else [*days, sorted(left)] if stuck == "rest" else days
        days.append(ready)
        left = {task: [one for one in needed if one not in ready] for task, needed in left.items() if task not in ready}
    return days


def cheapest_route(roads: list[list[int]], goal: int, *, toll: int, most: int, way: str) -> int:
    cost = {0: 0}
    for _ in range(most):
        further = dict(cost)
        for one, other, length in roads:
            pairs = [(one, other)] if way == "one" else [(one, other), (other, one)]
            for here, there in pairs:
                if here in cost:
                    price = cost[here] + length + toll * there
                    further[there] = min(further.get(there, price), price)
        cost = further
    return cost.get(goal, -1)


def edit_cost(one: str, other: str, *, insert: int, delete: int, replace: int, vowels: int) -> int:
    costs = [place * insert for place in range(len(other) + 1)]
    for row, sign in enumerate(one, start=1):
        before, costs = costs, [row * delete]
        for column, wanted in enumerate(other, start=1):
            change = 0 if sign == wanted else vowels if sign in "aeiou" and wanted in "aeiou" else replace
            costs.append(min(before[column] + delete, costs[-1] + insert, before[column - 1] + change))
    return costs[-1]


def longest_rising(numbers: list[int], *, least: int, gap: int, what: str) -> int:
    best: list[int] = []
    for place, number in enumerate(numbers):
        own = number if what == "sum" else 1
        fitting = [best[before] for before in range(max(0, place - gap), place) if number - numbers[before] >= least]
        best.append(own + max(fitting, default=0))
    return max(best, default=0)


def pack_bag(things: list[list[int]], *, capacity: int, most: int, again: bool) -> int:
    best = {(0, 0): 0}
    for weight, value in things:
        found = dict(best)
        for (load, count), worth in best.items():
            for copies in range(1, (most if again else 1) + 1):
                place = (load + copies * weight, count + copies)
                if place[0] <= capacity and place[1] <= most:
                    found[place] = max(found.get(place, 0), worth + copies * value)
        best = found
    return max(best.values())


def merge_spans(spans: list[list[int]], *, gap: int, least: int, order: str) -> list[list[int]]:
    merged: list[list[int]] = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] <= gap:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    kept = [span for span in merged if span[1] - span[0] >= least]
    return sorted(kept, key=lambda span: span[0] - span[1]) if order == "longest" else kept


def count_covered(spans: list[list[int]], *, times: int, exactly: bool, ends: str, limit: int) -> int:
    covered = 0
    for place in range(limit):
        count = sum(start <= place and (place < end or (ends == "included" and place == end)) for start, end in spans)
        covered += count == times if exactly else count >= times
    return covered


def find_gaps(spans: list[list[int]], *, opens: int, closes: int, least: int, pause: int) -> list[list[int]]:
    gaps, free = [], opens
    for start, end in sorted(spans):
        if min(start - pause, closes) - free >= least:
            gaps.append([free, min(start - pause, closes)])
        free = max(free, end + pause)
    if closes - free >= least:
        gaps.append([free, closes])
    return gaps
