"""Checks that functions and folders can be read at a glance. No body in src/ and include/ has more than 70 lines. `describe`,
which lists keys, and a body that only holds a table are excepted. It counts braces, so it needs code as clang-format leaves
it. No folder of src/ has more than 25 sources and headers of its own. Prints each violation as file:line: message, or
folder: message; exits 1 if there is one.

usage: check_sizes.py [ROOT]
"""

import re
import sys
from pathlib import Path

LIMIT = 70
SOURCES = 25
SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh", ".h"}
TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\''
                  r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
CONTAINER = re.compile(r"(?:\s|\w+:(?!:)|template\s*<.*>|inline\b)*(?:(?:namespace|class|struct|union|enum)\b|extern\s*$)", re.DOTALL)
NAME = re.compile(r"(?P<name>operator\W{1,3}|(?<!\w)~?(?!__)\w+)\s*\(")


def without_texts(code: str) -> str:
    """Returns the code without comments, strings and preprocessor lines; lines keep their numbers."""
    return TEXT.sub(lambda match: "\n" * match[0].count("\n"), code)


def is_function(head: str, before_brace: str) -> bool:
    """Whether a block after this declaration is a body, and no initializer such as `{1, 2}`."""
    head = re.sub(r"operator\W+?\(", "operator(", head)
    while (shorter := re.sub(r"\([^()]*\)", "", head)) != head:
        head = shorter
    return before_brace in " \n" and "=" not in head


def functions(code: str):
    """Yields the name, first line, number of lines and body of each function."""
    head = ""  # the declaration so far
    line, begin, start = 1, 0, 0
    depth = parentheses = 0  # blocks that are open inside of classes and namespaces; parentheses outside of blocks
    for at, char in enumerate(code):
        line += char == "\n"
        if depth > 0:
            depth += (char == "{") - (char == "}")
            if depth == 0:
                name = NAME.search(head)
                if name and is_function(head, code[start - 1]):
                    yield name["name"], begin, line - begin + 1, code[start + 1:at]
                    head = ""
            continue
        parentheses += (char == "(") - (char == ")")
        if parentheses == 0 and char == "{":
            if CONTAINER.match(head):
                head = ""
            else:
                depth, start, begin = 1, at, line
        elif parentheses == 0 and char in ";}":
            head = ""
        else:
            head += char


def is_table(body: str) -> bool:
    """Whether a body has no loop, no branch and at most two statements, so that its lines are one long list."""
    return not re.search(r"\b(?:if|for|while|switch|do|try)\b", body) and body.count(";") <= 2


def offences(root: Path):
    for base in ("include", "src"):
        for file in sorted((root / base).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = str(file.relative_to(root))
            for name, line, lines, body in functions(without_texts(file.read_text())):
                if lines > LIMIT and not name.startswith("describe") and not is_table(body):
                    yield f"{path}:{line}: {name} has {lines} lines; at most {LIMIT} fit on a screen, so name its steps"
    for folder in sorted(path for path in (root / "src").rglob("*") if path.is_dir()):
        count = sum(file.suffix in SUFFIXES for file in folder.iterdir())
        if count > SOURCES:
            yield f"{folder.relative_to(root)}: {count} sources; at most {SOURCES}, so divide it by what they are about"


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(offences(root))
    print("\n".join(found) if found else "functions and folders are small")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
