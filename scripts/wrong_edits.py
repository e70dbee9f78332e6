"""Finds places in src/ and include/ where one small edit makes the code wrong, and draws some of them. Bodies of functions
only, and in them no comments, texts, template arguments, conditional code or checks that no test can see; nothing for GPUs.
"""

import random
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from check_sizes import TEXT, functions

OPPOSITES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
             "+=": "-=", "-=": "+=", "*": "/", "/": "*", "*=": "/=", "/=": "*=", "true": "false", "false": "true", "min": "max", "max": "min"}
TERM = r"[A-Za-z_][\w.]*(?:(?:->|::)[\w.]+)*(?:\(\))?"
BRANCH = r"(?:::|[^?:,(){}\n]|\([^()\n]*\))+?"
CALL = r"(?!(?:return|throw|delete|else|if|for|while|switch|static_assert)\b)[A-Za-z_][\w.:§\[\]]*(?:->[\w.:§\[\]]+)*\(.*\);"
ASSIGNMENT = r"[A-Za-z_*][\w.:\[\]()>-]* (?:[-+*/|&^%]|<<|>>)?= .*;"
GUARD = r"(?:\} )?(?:else )?if (?:constexpr )?\(.*\) |else |for \(.*\) "
STATEMENT = re.compile(rf"\s*(?P<guard>{GUARD})?(?P<statement>{CALL}|{ASSIGNMENT}|(?P<leaves>(?:continue|break|return|throw)\b.*;))")
UNCHECKED = re.compile(r"\bGPUTRAIN_ASSERT\b|\bTORCH_CHECK\b|\bstatic_assert\b|\.reserve\(")  # no test can see these go


def arithmetic(match: re.Match) -> str | None:
    line = match.string
    joins_texts = match[0][0] in "+-" and re.search("[\"']", line) or match[0] == "/" and re.search(r"\"|folder|path|dir|file|root|home", line)
    return None if joins_texts else OPPOSITES[match[0]]


def swapped(match: re.Match) -> str | None:
    symmetric = re.search(r"\b(?:min|max|swap|equal)§*\($", match.string[:match.start()])
    return None if symmetric or match[1] == match[2] else f"{match[2]}, {match[1]}"


EDITS = [  # what is found in a line of a body, and what takes its place; texts and template arguments are masked by §
    ("comparison", r"(?<= )(?:[<>]=?|[=!]=)(?=\s|$)", lambda match: OPPOSITES[match[0]]),
    ("and, or", r"(?<= )(?:&&|\|\|)(?=\s|$)", lambda match: OPPOSITES[match[0]]),
    ("arithmetic", r"(?<= )[-+*/]=?(?=\s|$)", arithmetic),
    ("integer", r"(?<![\w.'])\d+(?![\w.'])", lambda match: str(int(match[0]) + 1)),
    ("boolean", r"\b(?:true|false)\b", lambda match: OPPOSITES[match[0]]),
    ("min, max", r"\b(?:min|max)(?=§*\()", lambda match: OPPOSITES[match[0]]),
    ("not", r"(?<=[\s(])!(?=[\w(*])", lambda match: ""),
    ("arguments", rf"(?<=[(\s])({TERM}), ({TERM})(?=[,)])", swapped),
    ("branches", rf"(?<= \? )({BRANCH}) : ({BRANCH})(?=[;,){{}}]|$)", None),  # takes the texts in it from the source
]


@dataclass(frozen=True)
class Place:
    """One wrong edit: the bytes from start to end of the file become another text."""
    file: str
    line: int
    kind: str
    before: str
    after: str
    start: int
    end: int
    text: str

    def key(self) -> str:
        return f"{self.file}:{self.line}:{self.kind}:{self.before}:{self.after}"


def blank(text: str, filler: str = " ") -> str:
    return re.sub(r"[^\n]", filler, text)


def masked(code: str) -> str:
    """Returns the code with blanks for comments, preprocessor lines and what is between #if and #endif, and with § in
    texts, whose quotes stay, and in template arguments."""
    def mask(match: re.Match) -> str:
        text = match[0]
        return text[0] + blank(text[1:-1], "§") + text[-1] if text[0] in "\"'R" else blank(text)

    code = re.sub(r"^#if\b.*?^#endif", lambda match: blank(match[0]), code, flags=re.MULTILINE | re.DOTALL)
    code = TEXT.sub(mask, code)
    templates = re.compile(r"(?<=[\w§])<[^<>;{}\n]*>|(?<=template )<[^<>;{}\n]*>")
    while templates.search(code):
        code = templates.sub(lambda match: blank(match[0], "§"), code)
    return code


def lines_of_bodies(code: str) -> dict[int, int]:
    """Returns the numbers of the lines that belong to bodies of functions, and the offsets at which each begins to."""
    plain = re.sub(r"[\"'§]", " ", code)
    starts = [0] + [match.end() for match in re.finditer("\n", plain)]
    found = {}
    for _, first, count, body in functions(plain):
        opened = plain.find("{" + body + "}", starts[first - 1])
        found |= {number: max(starts[number - 1], opened + 1) for number in range(first, first + count)}
    return found


def edits_of_line(line: str, source: str, before: str):
    """Yields kind, start, end and text of each edit of a masked line; `before` is the code line before it."""
    for kind, pattern, other in EDITS:
        for match in re.finditer(pattern, line):
            if kind == "branches":
                one, two = (source[match.start(group):match.end(group)] for group in (1, 2))
                if not (one.startswith('"') and two.startswith('"')) and one != two:
                    yield kind, *match.span(), f"{two} : {one}"
            elif (text := other(match)) is not None:
                yield kind, *match.span(), text
    match = STATEMENT.fullmatch(line.rstrip())
    if match and match["statement"].count("(") == match["statement"].count(")") and re.search(r"(?:[;{}:)]|\belse)\s*$|^$", before):
        guarded = "if" in (match["guard"] or "") or re.match(r"\s*(?:\} else )?if\b.*[){]\s*$", before)
        if guarded or not re.match("return|throw", match["leaves"] or ""):
            yield "statement", *match.span("statement"), "{}"


def places(root: Path, file: str, lines: set[int] | None = None) -> list[list[Place]]:
    """Returns the possible edits of a source, for each line that has some."""
    source = (root / file).read_text()
    code, found, before, at = masked(source), [], "", 0
    bodies = lines_of_bodies(code)
    for number, text in enumerate(source.splitlines(keepends=True), 1):
        begin, end = bodies.get(number, at), at + len(text)
        whole, line = code[at:end].rstrip(), code[begin:end].rstrip()
        if number in bodies and (lines is None or number in lines) and not UNCHECKED.search(whole):
            edits = [Place(file, number, kind, text.strip(), (source[at:begin + first] + new + source[begin + last:end]).strip(),
                           begin + first, begin + last, new)
                     for kind, first, last, new in edits_of_line(line, source[begin:end], before if begin == at else "{")]
            found += [edits] if edits else []
        before, at = whole if whole.strip() else before, end
    return found


def changed_lines(root: Path, revision: str) -> dict[str, set[int]]:
    diff = subprocess.run(["git", "diff", "-U0", "--no-color", "--no-ext-diff", revision, "--", "src", "include"], cwd=root,
                          capture_output=True, text=True, check=True).stdout
    found, file = {}, ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))?", line):
            first, count = int(match[1]), int(match[2] or 1)
            found.setdefault(file, set()).update(range(first, first + count))
    return found


def room_of(file: str) -> str:
    parts = file.split("/")
    return parts[1] if parts[0] == "src" else parts[2]


def draw(root: Path, seed: int, rooms: list[str], changed: dict[str, set[int]] | None):
    """Yields places in an order that the seed decides: a room by its lines of code, a line of it, an edit of that line."""
    pool, weights = {}, Counter()
    for path in sorted(path for base in ("include", "src") for path in (root / base).rglob("*.?pp")):
        file = str(path.relative_to(root))
        if "cuda" in path.parts or (rooms and room_of(file) not in rooms) or (changed is not None and file not in changed):
            continue
        if found := places(root, file, changed[file] if changed is not None else None):
            pool.setdefault(room_of(file), []).extend(found)
        weights[room_of(file)] += sum(1 for line in masked(path.read_text()).splitlines() if line.strip())
    chance = random.Random(seed)
    while pool:
        room = chance.choices(list(pool), [weights[name] for name in pool])[0]
        line = pool[room].pop(chance.randrange(len(pool[room])))
        if not pool[room]:
            del pool[room]
        yield chance.choice(line)
