"""Texts with a form: read, written, packed and unpacked."""


def read_settings(text: str, *, between: str, sign: str, twice: str, bare: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in text.split(between):
        name, found, value = part.partition(sign)
        name = name.strip()
        if not name or (not found and bare == "ignored"):
            continue
        value = value.strip() if found else "on"
        if name not in settings or twice == "last":
            settings[name] = value
        elif twice == "joined":
            settings[name] += "+" + value
    return settings


def split_quoted(line: str, *, between: str, quote: str, blank: str) -> list[str]:
    fields, field = [], ""
    inside, place = False, 0
    while place < len(line):
        sign = line[place]
        if sign == quote:
            if inside and line[place + 1 : place + 2] == quote:
                field += quote
                place += 1
            else:
                inside = not inside
        elif sign == between and not inside:
            fields.append(field)
            field = ""
        elif sign != " " or inside or blank == "kept":
            field += sign
        place += 1
    return [*fields, field]


def work_out(text: str, *, ranks: str, minus: str, right: bool) -> int:
    tokens = text.split(" ")
    numbers = [int(token) for token in tokens[::2]]
    signs = tokens[1::2]
    for sign in reversed(ranks):
        while sign in signs:
            place = len(signs) - 1 - signs[::-1].index(sign) if right else signs.index(sign)
            one, other = numbers[place], numbers.pop(place + 1)
            signs.pop(place)
            if sign == "-":
                numbers[place] = abs(one - other) if minus == "apart" else one - other
            else:
                numbers[place] = one + other if sign == "+" else one * other
    return numbers[0]


def check_brackets(text: str, *, pairs: list[str], most: int, what: str) -> int:
    opened: list[str] = []
    deepest = 0
    for place, sign in enumerate(text):
        for pair in pairs:
            if sign == pair[0]:
                opened.append(pair[1])
            elif sign == pair[1] and (not opened or opened.pop() != sign):
                return -1 - place
        if len(opened) > most:
            return -1 - place
        deepest = max(deepest, len(opened))
    if opened:
        return -1 - len(text)
    return deepest if what == "depth" else sum(sign in pair for sign in text for pair in pairs) // 2


def pack_runs(text: str, *, least: int, most: int, order: str, mark: str) -> str:
    packed, place = "", 0
    while place < len(text):
        end = place
        while end < len(text) and text[end] == text[place] and end - place < most:
            end += 1
        run = end - place
        if run < least:
            packed += text[place:end]
        else:
            packed += mark + (f"{run}{text[place]}" if order == "count" else f"{text[place]}{run}")
        place = end
    return packed


def unpack_groups(text: str, *, most: int, default: int, mirror: bool) -> str:
    parts = [""]
    counts: list[int] = []
    digits = ""
    for sign in text:
        if sign in "0123456789":
            digits += sign
        elif sign == "[":
            counts.append(min(int(digits), most) if digits else default)
            parts.append("")
            digits = ""
        elif sign == "]":
            group = parts.pop()
            for copy in range(counts.pop()):
                parts[-1] += group[::-1] if mirror and copy % 2 == 1 else group
        else:
            parts[-1] += sign
    return parts[0]


def escape_text(text: str, *, mark: str, kept: str, width: int, base: int) -> str:
    escaped = ""
    for sign in text:
        if sign in kept:
            escaped += sign
            continue
        left, digits = ord(sign), ""
        while left:
            digits = "0123456789ABCDEF"[left % base] + digits
            left //= base
        escaped += mark + digits.rjust(width, "0")
    return escaped


def fill_template(text: str, values: dict[str, str], *, pair: str, missing: str, case: str) -> str:
    filled, place = "", 0
    while place < len(text):
        end = text.find(pair[1], place + 1)
        if text[place] != pair[0] or end < 0:
            filled += text[place]
            place += 1
            continue
        name = text[place + 1 : end]
        if case == "ignored":
            name = name.lower()
        if name in values:
            filled += values[name]
        elif missing == "left":
            filled += text[place : end + 1]
        elif missing == "asked":
            filled += "?"
        place = end + 1
    return filled


def compare_versions(one: str, other: str, *, missing: int, letters: str, deepest: int) -> int:
    def parts(version: str) -> list[int]:
        number, _, tail = version.partition("-")
        found = [int(part) for part in number.split(".")][:deepest]
        found += [missing] * (deepest - len(found))
        if letters != "ignored":
            found.append((-1 if letters == "before" else 1) if tail else 0)
        return found

    left, right = parts(one), parts(other)
    return (left > right) - (left < right)
