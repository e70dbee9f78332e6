"""The commands that messages and pages name: each verb exists, and has each option."""
import re
import subprocess
import sys
import unittest
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop(1)


@lru_cache(maxsize=None)
def help_of(*verbs):
    return subprocess.run([PROGRAM, *verbs, "--help"], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def verbs_of(*verbs):
    _, _, listed = help_of(*verbs).partition("Subcommands:")
    return set(re.findall(r"^  ([a-z]+) ", listed, flags=re.M))


def commands():
    for path in sorted((ROOT / "src").rglob("*.[ch]pp")):
        text = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M)
        text = re.sub(r'"\s*\n\s*"', "", text)  # literals beside each other are one
        text = re.sub(r'"\s*\+[^";]*?\+\s*"', "X", text)  # what is inserted is some word
        for command in re.findall(r"`gputrain ([^`\"\n]*)`", text):
            yield path.relative_to(ROOT), command


def commands_of_pages():
    """Commands in blocks of code, without what is told beside them, and those in backticks."""
    pages = [path for folder in (".", "configs", "configs/launch", "docker") for path in sorted((ROOT / folder).glob("*.md"))]
    for path in pages:
        if path.name == "CHANGELOG.md":  # it also names what has gone
            continue
        text = path.read_text().replace("\\\n", " ")
        for block in re.findall(r"^```.*?\n(.*?)^```", text, flags=re.M | re.S):
            for line in block.splitlines():
                for command in re.findall(r"(?:^|[ /])gputrain ([a-z-].*)", re.split(r"   +|  #|[|&;>]", line)[0]):
                    yield path.relative_to(ROOT), command
        for command in re.findall(r"`gputrain ([a-z-][^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
            yield path.relative_to(ROOT), command


def mistake_in(command):
    words, verbs = command.split(), []
    launched = [at for at, word in enumerate(words) if at > 0 and words[0] == "launch" and word in verbs_of()]
    if launched:  # the options of both
        return mistake_in(" ".join(words[:launched[0]])) or mistake_in(" ".join(words[launched[0]:]))
    while words and words[0] in verbs_of(*verbs):
        verbs.append(words.pop(0))
    if not verbs and words[0].startswith("-"):
        return "" if words[0] in help_of() else f"no option {words[0]}"
    if not verbs or (verbs_of(*verbs) and words and not words[0].startswith("-")):
        return f"no verb {words[0]}"
    options = set(re.findall(r"--[a-z][a-z-]*", help_of(*verbs)))
    for word in words:
        if word.startswith("--") and word.split("=")[0] not in options | {"--help"}:
            return f"{' '.join(verbs)} has no option {word}"
    return ""


class Commands(unittest.TestCase):
    def test_commands_in_messages_exist(self):
        found = [(path, command) for path, command in commands() if not command.startswith("X")]
        self.assertGreater(len(found), 30)
        for path, command in found:
            with self.subTest(file=str(path), command=command):
                self.assertEqual(mistake_in(command), "")

    def test_commands_in_pages_exist(self):
        found = list(commands_of_pages())
        self.assertGreater(len(found), 150)
        for path, command in found:
            with self.subTest(page=str(path), command=command):
                self.assertEqual(mistake_in(command), "")

    def test_mistakes_are_found(self):
        for command in ("fly", "ckpt fly runs/x", "run job.yaml --fly", "launch --nproc-per-node 2 run job.yaml --fly"):
            self.assertNotEqual(mistake_in(command), "", command)
        for command in ("ckpt ls runs/x --json", "launch --nproc-per-node 2 run job.yaml --new"):
            self.assertEqual(mistake_in(command), "", command)


if __name__ == "__main__":
    unittest.main()
