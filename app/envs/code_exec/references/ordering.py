"""Putting in order by rules, and setting out in lines."""


def sort_records(records: list[list[str | int]], *, keys: str, down: str, least: int) -> list[list[str | int]]:
    kept = [(str(name), int(age), int(score)) for name, age, score in records if int(score) >= least]
    first, second = keys.split(" ")
    for key in (second, first):
        downwards = down == "all" or (down == "first" and key == first)
        if key == "name":
            kept.sort(key=lambda record: record[0], reverse=downwards)
        elif key == "age":
            kept.sort(key=lambda record: record[1], reverse=downwards)
        else:
            kept.sort(key=lambda record: record[2], reverse=downwards)
    return [[name, age, score] for name, age, score in kept]


def sort_words(words: list[str], *, alphabet: str, by: str, same: str) -> list[str]:
    ranked = [word if by != "last" else word[::-1] for word in words]
    ranked.sort(key=lambda word: (len(word) if by == "length" else 0, [alphabet.index(sign) for sign in word]))
    ordered = [word if by != "last" else word[::-1] for word in ranked]
    return ordered if same == "kept" else list(dict.fromkeys(ordered))


def rank_scores(scores: list[int], *, best: str, ties: str, step: int) -> list[int]:
    ordered = sorted(scores, reverse=best == "high")
    ranks = []
    for place, score in enumerate(scores):
        if ties == "dense":
            before = sorted(set(scores), reverse=best == "high").index(score)
        elif ties == "low":
            before = len(ordered) - 1 - ordered[::-1].index(score)
        else:
            before = ordered.index(score)
            if ties == "place":
                before += scores[:place].count(score)
        ranks.append(1 + step * before)
    return ranks


def sort_some(numbers: list[int], *, divisor: int, remainder: int, down: bool, rest: str) -> list[int]:
    chosen = sorted((number for number in numbers if number % divisor == remainder), reverse=down)
    result = []
    for number in numbers if rest == "kept" else numbers[::-1]:
        result.append(chosen.pop(0) if number % divisor == remainder else number)
    return result


def pass_over(numbers: list[int], *, passes: int, gap: int, down: bool) -> list[int]:
    result = numbers[:]
    for _ in range(passes):
        for place in range(len(result) - gap):
            wrong = result[place] < result[place + gap] if down else result[place] > result[place + gap]
            if wrong:
                result[place], result[place + gap] = result[place + gap], result[place]
    return result


def wrap_text(text: str, *, width: int, side: str, long: str, fill: str) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        pieces = [word]
        if len(word) > width and long == "cut":
            pieces = [word[start : start + width] for start in range(0, len(word), width)]
        elif len(word) > width:
            pieces = [word[: width - 1] + "~"]
        for piece in pieces:
            if lines and len(lines[-1]) + 1 + len(piece) <= width:
                lines[-1] += " " + piece
            else:
                lines.append(piece)
    if side == "left":
        return [line + fill * (width - len(line)) for line in lines]
    if side == "right":
        return [fill * (width - len(line)) + line for line in lines]
    return [fill * ((width - len(line)) // 2) + line + fill * ((width - len(line) + 1) // 2) for line in lines]


def set_table(rows: list[list[str]], *, between: str, side: str, under: str, most: int) -> list[str]:
    cut = [[cell[:most] for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*cut, strict=True)]
    lines = []
    for number, row in enumerate(cut):
        cells = []
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            to_the_left = side == "left" or (side == "first" and place == 0)
            cells.append(cell.ljust(width) if to_the_left else cell.rjust(width))
        lines.append(between.join(cells))
        if number == 0:
            lines.append(under * len(lines[0]))
    return lines


def draw_bars(numbers: list[int], *, unit: int, sign: str, rounding: str, most: int) -> list[str]:
    bars = []
    for number in numbers:
        length = -(-number // unit) if rounding == "up" else number // unit
        bars.append(sign * length if length <= most else sign * (most - 1) + "+")
    return bars


def group_digits(number: int, *, size: int, between: str, negative: str, least: int) -> str:
    digits = str(abs(number))
    if len(digits) >= least:
        first = len(digits) % size or size
        parts = [digits[:first]] + [digits[start : start + size] for start in range(first, len(digits), size)]
        digits = between.join(parts)
    if number >= 0:
        return digits
    return f"({digits})" if negative == "brackets" else f"{digits}-" if negative == "after" else f"-{digits}"
