"""Calendars, clocks and spans of time, of this world and of others."""


def add_days(date: list[int], days: int, *, months: int, length: int, every: int) -> list[int]:
    year, month, day = date
    day += days
    while True:
        full = length + 1 if month % every == 0 else length
        if day <= full:
            return [year, month, day]
        day -= full
        month += 1
        if month > months:
            year, month = year + 1, 1


def count_leap_years(first: int, last: int, *, each: int, but: int, unless: int) -> int:
    return sum(
        year % each == 0 and (year % (each * but) != 0 or year % (each * but * unless) == 0)
        for year in range(first, last + 1)
    )


def move_clock(time: str, minutes: int, *, hours: int, length: int, way: str, mark: str) -> str:
    hour, minute = time.split(":")
    moved = int(hour) * length + int(minute) + (minutes if way == "forward" else -minutes)
    days, rest = divmod(moved, hours * length)
    return f"{rest // length:02}:{rest % length:02}" + mark * abs(days)


def fiscal_period(date: str, *, start: int, months: int, named: str) -> str:
    year, month, _ = (int(part) for part in date.split("-"))
    since = (month - start) % 12
    if named == "beginning":
        year -= month < start
    else:
        year += month >= start
    return f"{year}/{since // months + 1}"


def nth_weekday(year: int, month: int, *, weekday: int, rank: int, side: str) -> str:
    lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = lengths[month - 1] + (leap and month == 2)
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    days += sum(lengths[: month - 1]) + (leap and month > 2)
    fitting = [day for day in range(1, length + 1) if (days + day - 1) % 7 == weekday]
    if rank > len(fitting):
        return "none"
    day = fitting[rank - 1] if side == "first" else fitting[-rank]
    return f"{year:04}-{month:02}-{day:02}"


def say_duration(seconds: int, *, minute: int, hour: int, empty: str, most: int) -> str:
    units = [("h", seconds // (minute * hour)), ("m", seconds // minute % hour), ("s", seconds % minute)]
    if empty == "left out":
        units = [(name, count) for name, count in units if count]
    return " ".join(f"{count}{name}" for name, count in units[:most]) or "0s"


def paid_minutes(shifts: list[list[int]], *, full: int, pause: int, step: int, rounding: str) -> int:
    total = 0
    for start, end in shifts:
        worked = end - start
        if worked >= full:
            worked -= pause
        total += worked // step if rounding == "down" else -(-worked // step)
    return total * step
