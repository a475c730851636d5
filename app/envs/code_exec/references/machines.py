"""Things that happen one after the other: machines, accounts, queues, caches."""


def sell_tickets(coins: list[int], *, price: int, accepted: list[int], tickets: int, change: str) -> list[int]:
    sold, held, returned = 0, 0, 0
    for coin in coins:
        if coin not in accepted or sold == tickets:
            returned += coin
            continue
        held += coin
        while held >= price and sold < tickets:
            held -= price
            sold += 1
            if change == "returned":
                returned += held
                held = 0
    return [sold, held, returned]


def run_stack(text: str, *, most: int, under: str, minus: str) -> list[int] | None:
    stack: list[int] = []
    for word in text.split():
        needed = {"dup": 1, "drop": 1, "swap": 2, "add": 2, "sub": 2}.get(word, 0)
        if len(stack) < needed or (len(stack) == most and (word == "dup" or needed == 0)):
            if under == "stop":
                return stack
            if under == "fail":
                return None
            continue
        if word == "dup":
            stack.append(stack[-1])
        elif needed == 0:
            stack.append(int(word))
        else:
            top = stack.pop()
            if word == "swap":
                stack.insert(len(stack) - 1, top)
            elif word != "drop":
                below = stack.pop()
                stack.append(below + top if word == "add" else below - top if minus == "below" else top - below)
    return stack


def run_registers(program: list[list[str | int]], *, most: int, modulus: int, start: int, skip: int) -> list[int]:
    registers = {"a": start, "b": 0}
    place, steps = 0, 0
    while 0 <= place < len(program) and steps < most:
        order, name, value = str(program[place][0]), str(program[place][1]), int(program[place][2])
        steps += 1
        place += 1
        if order == "set":
            registers[name] = value % modulus
        elif order == "add":
            registers[name] = (registers[name] + value) % modulus
        elif order == "mul":
            registers[name] = registers[name] * value % modulus
        elif order == "jump" and registers[name] != 0:
            place += value - 1
        elif order == "skip" and registers[name] >= value:
            place += skip
    return [registers["a"], registers["b"], steps]


def serve_cache(requests: list[str], *, size: int, rule: str, what: str) -> list[str] | int:
    held: list[str] = []
    uses: dict[str, int] = {}
    hits = 0
    for name in requests:
        if name in held:
            hits += 1
            uses[name] += 1
            if rule == "recent":
                held.remove(name)
                held.append(name)
            continue
        if len(held) == size:
            gone = held[-1] if rule == "newest" else held[0]
            if rule == "rare":
                gone = min(held, key=lambda one: (uses[one], held.index(one)))
            held.remove(gone)
        held.append(name)
        uses[name] = 1
    return hits if what == "hits" else len(requests) - hits if what == "misses" else sorted(held)


def keep_account(bookings: list[int], *, start: int, credit: int, fee: int, every: int) -> list[int]:
    balance, refused = start, 0
    for number, amount in enumerate(bookings, start=1):
        if balance + amount < -credit:
            refused += 1
        else:
            balance += amount
        if number % every == 0 and balance < 0:
            balance -= fee
    return [balance, refused]


def wait_in_line(customers: list[list[int]], *, desks: int, pause: int, patience: int) -> list[int]:
    free = [0] * desks
    begun = []
    for arrival, work in customers:
        desk = min(range(desks), key=lambda one: (max(free[one], arrival), one))
        begin = max(free[desk], arrival)
        if begin - arrival > patience:
            begun.append(-1)
            continue
        begun.append(begin)
        free[desk] = begin + work + pause
    return begun


def play_rounds(throws: list[int], *, target: int, bonus: int, over: str, ones: str) -> list[int]:
    points, streak = 0, 0
    history = []
    for throw in throws:
        streak = streak + 1 if throw == 6 else 0
        gained = throw + (bonus if streak >= 2 else 0)
        if throw == 1 and ones == "lose":
            gained = points // 2 - points
        if points + gained > target:
            points = points if over == "stay" else 2 * target - points - gained if over == "back" else 0
        else:
            points += gained
        history.append(points)
        if points == target:
            break
    return history
