"""Texts: letters moved, counted, hidden and put together again."""


def shift_letters(text: str, *, shift: int, kinds: str, backwards: bool) -> str:
    shifted = ""
    for sign in text:
        start = "a" if sign in "abcdefghijklmnopqrstuvwxyz" else "A" if sign in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" else ""
        if start and kinds in ("both", start):
            sign = chr((ord(sign) - ord(start) + shift) % 26 + ord(start))
        shifted += sign
    return shifted[::-1] if backwards else shifted


def mask_text(text: str, *, first: int, last: int, mark: str, short: str) -> str:
    hidden = len(text) - first - last
    if hidden <= 0:
        return text if short == "left" else mark * len(text)
    return text[:first] + mark * hidden + text[len(text) - last :]


def squeeze_runs(text: str, *, most: int, kind: str, sign: str) -> str:
    squeezed, run = "", 0
    for place, one in enumerate(text):
        run = run + 1 if place and text[place - 1] == one else 1
        if run <= most or (kind == "letters" and one in "0123456789") or (kind == "digits" and one not in "0123456789"):
            squeezed += one
        elif run == most + 1:
            squeezed += sign
    return squeezed


def reverse_blocks(text: str, *, size: int, start: int, rest: str) -> str:
    result = text[:start]
    for place in range(start, len(text), size):
        block = text[place : place + size]
        if len(block) == size or rest == "reversed":
            result += block[::-1]
        elif rest == "kept":
            result += block
    return result


def pick_words(text: str, *, least: int, case: str, between: str, order: str) -> str:
    words = [word for word in text.split(" ") if len(word) >= least]
    if order == "reversed":
        words.reverse()
    elif order == "sorted":
        words.sort()
    if case != "kept":
        words = [word.upper() if case == "upper" else word[:1].upper() + word[1:] for word in words]
    return between.join(words)


def score_text(text: str, *, vowel: int, consonant: int, factor: int) -> int:
    score = 0
    for sign in text:
        if sign in "0123456789":
            score += factor * int(sign)
        elif sign in "aeiou":
            score += vowel
        elif sign in "bcdfghjklmnpqrstvwxyz":
            score += consonant
    return score


def longest_run(text: str, *, least: int, ties: str, case: str) -> list[str | int] | None:
    said = text.lower() if case == "ignored" else text
    best: tuple[int, str] | None = None
    start = 0
    for place in range(1, len(said) + 1):
        if place < len(said) and said[place] == said[start]:
            continue
        length = place - start
        if length >= least and (best is None or length > best[0] or (length == best[0] and ties == "last")):
            best = (length, said[start])
        start = place
    return None if best is None else [best[1], best[0]]


def abbreviate(text: str, *, letters: int, least: int, case: str, after: str) -> str:
    short = ""
    for word in text.split():
        if len(word) >= least:
            short += word[:letters] + after
        else:
            short += word
    return short.upper() if case == "upper" else short


def common_part(texts: list[str], *, end: str, case: str, least: int) -> str:
    if not texts:
        return ""
    turned = [text if end == "beginning" else text[::-1] for text in texts]
    first, common = turned[0], ""
    for place, sign in enumerate(first):
        if case == "ignored":
            fits = all(place < len(text) and text[place].lower() == sign.lower() for text in turned)
        else:
            fits = all(place < len(text) and text[place] == sign for text in turned)
        if not fits:
            break
        common += sign
    if len(common) < least:
        return ""
    return common if end == "beginning" else common[::-1]


def move_consonants(text: str, *, vowels: str, moved: str, unmoved: str) -> str:
    result = []
    for word in text.split():
        start = 0
        while start < len(word) and word[start] not in vowels:
            start += 1
        if start == 0 or start == len(word):
            result.append(word + unmoved)
        else:
            result.append(word[start:] + word[:start] + moved)
    return " ".join(result)


def nearly_mirrored(text: str, *, misses: int, case: str, ignored: str) -> bool:
    kept = [sign for sign in (text.lower() if case == "ignored" else text) if sign not in ignored]
    pairs = zip(kept[: len(kept) // 2], reversed(kept), strict=False)
    return sum(one != other for one, other in pairs) <= misses


def shift_onwards(text: str, *, start: int, step: int, counted: str) -> str:
    result, place = "", 0
    for sign in text:
        letter = "a" <= sign <= "z"
        if letter:
            sign = chr((ord(sign) - ord("a") + start + place * step) % 26 + ord("a"))
        if letter or counted == "all":
            place += 1
        result += sign
    return result
