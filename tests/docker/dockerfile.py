"""Parses a Dockerfile into stages and reports what would break, without a container engine."""
import dataclasses
import json
import pathlib
import re
import shlex


@dataclasses.dataclass
class Instruction:
    line: int
    word: str  # "COPY"
    text: str  # the rest of the instruction, on one line

    def words(self) -> list[str]:
        """The arguments: the strings of a JSON list, otherwise the words."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


@dataclasses.dataclass
class Stage:
    name: str
    base: str
    instructions: list[Instruction]

    def last(self, word: str) -> Instruction | None:
        found = [one for one in self.instructions if one.word == word]
        return found[-1] if found else None


@dataclasses.dataclass
class Dockerfile:
    arguments: dict[str, str]  # ARGs before the first stage, which FROM lines may use
    stages: list[Stage]


def read_instructions(text: str) -> list[Instruction]:
    instructions, parts, first = [], [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        first = first if parts else number
        parts.append(line.rstrip("\\").strip())
        if not line.endswith("\\"):
            word, _, rest = " ".join(parts).partition(" ")
            instructions.append(Instruction(first, word, rest.strip()))
            parts = []
    return instructions


def read(text: str) -> Dockerfile:
    arguments, stages = {}, []
    for one in read_instructions(text):
        if one.word == "FROM":
            base, _, name = one.words() if " AS " in one.text else (one.text, "", "")
            stages.append(Stage(name, base, [one]))
        elif not stages:
            name, _, value = one.text.partition("=")
            arguments[name] = value
        else:
            stages[-1].instructions.append(one)
    return Dockerfile(arguments, stages)


def expand(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], text)


def variables(text: str) -> set[str]:
    return set(re.findall(r"\$\{?(\w+)\}?", text))


def ignored(context: pathlib.Path) -> list[str]:
    """The patterns of .dockerignore."""
    lines = (context / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def is_ignored(source: str, ignore: list[str]) -> bool:
    return any(source == pattern or source.startswith(pattern + "/") for pattern in ignore)


def sources(instruction: Instruction, root: pathlib.Path) -> tuple[list[str], list[str], str]:
    """For a COPY: the files of the context that it names, the patterns without a match, and the destination."""
    *patterns, destination = [word for word in instruction.words() if not word.startswith("--")]
    found, missing = [], []
    for pattern in patterns:
        files = ["."] if pattern == "." else sorted(str(path.relative_to(root)) for path in root.glob(pattern))
        found += files
        missing += [] if files else [pattern]
    return found, missing, destination


class Checker:
    def __init__(self, text: str, root: pathlib.Path):
        self.file, self.root, self.found = read(text), root, []
        self.ignore = ignored(root)

    def say(self, instruction: Instruction, what: str):
        self.found.append(f"line {instruction.line}: {instruction.word} {what}")

    def problems(self) -> list[str]:
        for stage in self.file.stages:
            self.check_base(stage)
            declared, copied = {"PATH"}, {}
            for one in stage.instructions[1:]:
                self.check_variables(one, declared)
                if one.word == "COPY":
                    self.check_copy(stage, one, copied)
                if one.word == "RUN":
                    self.check_run(one, copied)
                if one.word in ("ENTRYPOINT", "CMD") and not one.text.startswith("["):
                    self.say(one, "is run by a shell, which passes no signals on: write it in brackets")
            self.check_user(stage)
        return self.found

    def check_base(self, stage: Stage):
        first = stage.instructions[0]
        if stage.base in [earlier.name for earlier in self.file.stages]:
            return
        unknown = variables(stage.base) - self.file.arguments.keys()
        if unknown:
            return self.say(first, f"uses {', '.join(unknown)}, which no ARG before the first stage declares")
        image = expand(stage.base, self.file.arguments)
        if not re.search(r":[\w.-]*\d", image) or image.endswith(":latest"):
            self.say(first, f"takes {image}, which is another image every month: give it a version")

    def check_variables(self, one: Instruction, declared: set[str]):
        if one.word == "ARG":
            declared.add(one.text.partition("=")[0])
        for name in sorted(variables(one.text) - declared):
            self.say(one, f"uses {name}, which no ARG of its stage declares")
        if one.word == "ENV":
            declared.update(word.partition("=")[0] for word in one.words())

    def check_copy(self, stage: Stage, one: Instruction, copied: dict[str, str]):
        origin = [word.partition("=")[2] for word in one.words() if word.startswith("--from=")]
        if origin:
            names = [earlier.name for earlier in self.file.stages]
            if origin[0] not in names[: self.file.stages.index(stage)]:
                self.say(one, f"takes from {origin[0]}, which is no stage before this one")
            return
        found, missing, destination = sources(one, self.root)
        for pattern in missing:
            self.say(one, f"finds no {pattern}")
        for source in found:
            if is_ignored(source, self.ignore):
                self.say(one, f"finds no {source}: .dockerignore hides it")
            copied[destination + source.rpartition("/")[2] if destination.endswith("/") else destination] = source

    def check_run(self, one: Instruction, copied: dict[str, str]):
        for command in one.text.split("&&"):
            program = shlex.split(command)[0]
            script = self.root / copied.get(program, program)
            if not script.is_file() or not script.stat().st_mode & 0o100:
                self.say(one, f"{program}: is no script of this repository that can be run")

    def check_user(self, stage: Stage):
        """Checks that a container does not start as root; a stage without ENTRYPOINT starts nothing."""
        user, entry = stage.last("USER"), stage.last("ENTRYPOINT")
        if entry and (not user or user.line > entry.line or user.text.split(":")[0] in ("root", "0")):
            self.say(entry, "is started by root: no USER of its stage before it names another")


def problems(text: str, root: pathlib.Path) -> list[str]:
    return Checker(text, root).problems()
