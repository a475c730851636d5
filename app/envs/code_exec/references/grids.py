"""Rows and columns: turned, counted in, walked through; and intervals on a line."""


def read_spiral(grid: list[list[int]], *, corner: str, turn: str, step: int) -> list[int]:
    rows = [row[:] for row in grid]
    if "bottom" in corner:
        rows.reverse()
    if "right" in corner:
        rows = [row[::-1] for row in rows]
    if (turn == "clockwise") == (corner in ("top right", "bottom left")):
        rows = [list(column) for column in zip(*rows, strict=True)]
    spiral: list[int] = []
    while rows and rows[0]:
        spiral += rows.pop(0)
        rows = [list(column) for column in zip(*rows, strict=True)][::-1]
    return spiral[::step]


def count_near(lines: list[str], *, mark: str, near: str, edges: str) -> list[list[int]]:
    steps = {
        "sides": [(0, 1), (0, -1), (1, 0), (-1, 0)],
        "corners": [(1, 1), (1, -1), (-1, 1), (-1, -1)],
        "knight": [(1, 2), (1, -2), (-1, 2), (-1, -2), (2, 1), (2, -1), (-2, 1), (-2, -1)],
        "row": [(0, 1), (0, -1), (0, 2), (0, -2)],
    }[near]
    counts = []
    for row, line in enumerate(lines):
        counted = []
        for column in range(len(line)):
            count = 0
            for down, right in steps:
                there, across = row + down, column + right
                if edges == "joined":
                    there, across = there % len(lines), across % len(line)
                if 0 <= there < len(lines) and 0 <= across < len(line):
                    count += lines[there][across] == mark
            counted.append(count)
        counts.append(counted)
    return counts


def live_on(lines: list[str], *, born: list[int], stays: list[int], times: int, outside: str) -> list[str]:
    for _ in range(times):
        grown = []
        for row, line in enumerate(lines):
            new = ""
            for column, cell in enumerate(line):
                near = 0
                for down in (-1, 0, 1):
                    for right in (-1, 0, 1):
                        there, across = row + down, column + right
                        inside = 0 <= there < len(lines) and 0 <= across < len(line)
                        if (down or right) and (lines[there][across] == "#" if inside else outside == "#"):
                            near += 1
                new += "#" if near in (stays if cell == "#" else born) else "."
            grown.append(new)
        lines = grown
    return lines


def sum_cells(grid: list[list[int]], *, slope: int, modulus: int, remainder: int, odd: str) -> int:
    total = 0
    for row, cells in enumerate(grid):
        for column, cell in enumerate(cells):
            if (row + slope * column) % modulus == remainder:
                if cell % 2 == 0 or odd == "added":
                    total += cell
                elif odd == "subtracted":
                    total -= cell
    return total


def let_fall(lines: list[str], *, falling: str, way: str, solid: str) -> list[str]:
    columns = lines if way in ("left", "right") else ["".join(column) for column in zip(*lines, strict=True)]
    settled = []
    for column in columns:
        cells = list(column if way in ("right", "down") else column[::-1])
        for place in range(len(cells) - 1, -1, -1):
            below = place
            while cells[place] == falling and below + 1 < len(cells) and cells[below + 1] not in solid + falling:
                below += 1
            if below != place:
                moved = cells.pop(place)
                cells.insert(below, moved)
        text = "".join(cells)
        settled.append(text if way in ("right", "down") else text[::-1])
    return settled if way in ("left", "right") else ["".join(row) for row in zip(*settled, strict=True)]


def find_regions(lines: list[str], *, least: int, corners: bool, mark: str, what: str) -> int:
    todo = {(row, column) for row, line in enumerate(lines) for column, cell in enumerate(line) if cell == mark}
    sizes = []
    while todo:
        region, size = [todo.pop()], 0
        while region:
            row, column = region.pop()
            size += 1
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    near = (row + down, column + right)
                    if near in todo and (corners or not (down and right)):
                        todo.remove(near)
                        region.append(near)
        if size >= least:
            sizes.append(size)
    return len(sizes) if what == "count" else sum(sizes) if what == "cells" else max(sizes, default=0)


def fewest_moves(lines: list[str], *, moves: str, mud: int, edges: str) -> int:
    steps = {
        "sides": [(0, 1), (0, -1), (1, 0), (-1, 0)],
        "all": [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)],
        "knight": [(1, 2), (1, -2), (-1, 2), (-1, -2), (2, 1), (2, -1), (-2, 1), (-2, -1)],
        "twos": [(0, 1), (0, -1), (1, 0), (-1, 0), (0, 2), (0, -2), (2, 0), (-2, 0)],
    }[moves]
    goal = (len(lines) - 1, len(lines[0]) - 1)
    cost = {(0, 0): 0}
    left = [(0, 0)]
    while left:
        here = min(left, key=lambda place: cost[place])
        left.remove(here)
        for down, right in steps:
            row, column = here[0] + down, here[1] + right
            if edges == "joined":
                row, column = row % len(lines), column % len(lines[0])
            if not (0 <= row < len(lines) and 0 <= column < len(lines[0])) or lines[row][column] == "#":
                continue
            price = cost[here] + (mud if lines[row][column] == "~" else 1)
            if price < cost.get((row, column), price + 1):
                cost[row, column] = price
                left.append((row, column))
    return cost.get(goal, -1)


def walk_robot(orders: str, *, size: int, wall: str, facing: str, turn: str) -> list[int]:
    ways = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    way = ["north", "east", "south", "west"].index(facing)
    x, y = 0, 0
    for order in orders:
        if order == "L":
            way = (way - 1) % 4
        elif order == "R":
            way = (way + 1) % 4
        elif order == "F":
            to_x, to_y = x + ways[way][0], y + ways[way][1]
            if 0 <= to_x < size and 0 <= to_y < size:
                x, y = to_x, to_y
            else:
                way = (way + {"left": -1, "back": 2, "right": 1}[turn]) % 4
                if wall == "round":
                    x, y = to_x % size, to_y % size
                elif wall == "home":
                    x, y = 0, 0
    return [x, y]


def best_descent(grid: list[list[int]], *, reach: int, penalty: int, which: str) -> int:
    best = grid[0]
    for row in grid[1:]:
        arrived = []
        for column, cell in enumerate(row):
            from_here = range(max(0, column - reach), min(len(row), column + reach + 1))
            if which == "most":
                arrived.append(cell + max(best[before] - penalty * (before != column) for before in from_here))
            else:
                arrived.append(cell + min(best[before] + penalty * (before != column) for before in from_here))
        best = arrived
    return max(best) if which == "most" else min(best)
