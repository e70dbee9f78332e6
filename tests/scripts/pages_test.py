"""The pages: links that lead somewhere, keys that a job has, whole jobs that are valid, keys.md and
compatibility.md as the program prints them."""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop(1)
FOLDERS = ("", "configs", "configs/launch", "docker", "scripts/bench", "scripts/gpu", "src", "tests")
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]


def text_of(page):
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)


def anchors_of(page):
    """The anchors of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def run(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False, cwd=ROOT)


class Pages(unittest.TestCase):
    def test_pages_are_those_of_the_program(self):
        for page in ("keys", "compatibility"):
            printed = run("describe", "--markdown", page).stdout
            self.assertTrue(printed == (ROOT / f"configs/{page}.md").read_text(),
                            f"write it anew: gputrain describe --markdown {page} > configs/{page}.md")

    def test_links_lead_somewhere(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                to = (page.parent / path).resolve() if path else page
                with self.subTest(page=str(page.relative_to(ROOT)), link=target):
                    self.assertTrue(to.exists(), "no such file")
                    if anchor:
                        self.assertIn(anchor, anchors_of(to))

    def test_keys_exist(self):
        """Of what stands in backticks, each `train.max_steps` and `--set train.max_steps=5` that begins with a section."""
        keys = set(re.findall(r"^\| `([^`]+)` \|", (ROOT / "configs/keys.md").read_text(), flags=re.M))
        sections = {key.split(".")[0] for key in keys if "." in key} - {"schema", "name"}
        open_groups = tuple(key[:-1] for key in keys if key.endswith(".*")) + ("model.config.", "task.config.", "env.", "expect.")
        for page in PAGES:
            if page.name in ("keys.md", "CHANGELOG.md"):
                continue
            for key in re.findall(r"`(?:--set )?([a-z_]+\.[a-z_.]+[a-z_])(?=[`:= ])", text_of(page)):
                if key.split(".")[0] not in sections or re.search(r"\.(data|onnx|json|jsonl|safetensors|md|yaml|csv|html|hpp|cpp|py)$", key):
                    continue
                with self.subTest(page=str(page.relative_to(ROOT)), key=key):
                    self.assertTrue(key in keys or key.startswith(open_groups), "no such key of a job")

    def test_promises_name_tests_that_exist_and_check_their_exit_codes(self):
        codes = {1: "internal", 2: "usage", 3: "data", 4: "refused", 5: "checkpoint", 6: "environment", 93: "no_restart", 138: "restart"}
        tests = {}
        for path in (ROOT / "tests").rglob("*_test.cpp"):
            text = path.read_text()
            for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text, flags=re.M):
                tests[f"{suite}.{name}"] = tests.get(f"{suite}.{name}", "") + text
        for row in (ROOT / "tests/README.md").read_text().splitlines():
            named = re.findall(r"`([A-Z]\w+\.[A-Z]\w+)`", row)
            for name in named:
                with self.subTest(test=name):
                    self.assertIn(name, tests)
            for code in re.findall(r"\bexit (\d+)", row) if named else []:
                with self.subTest(row=row):
                    words = rf"\b{code}\b|ExitCode::{codes.get(int(code))}\b"
                    self.assertTrue(any(re.search(words, tests[name]) for name in named if name in tests), f"no file of these tests has {code}")

    def test_whole_jobs_are_valid(self):
        count = 0
        for page in PAGES:
            for job in re.findall(r"^```yaml\n(schema: 1\n.*?)^```", page.read_text(), flags=re.M | re.S):
                count += 1
                with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file, self.subTest(page=page.name, job=job):
                    file.write(job)
                    file.flush()
                    self.assertEqual(run("validate", file.name).returncode, 0, run("validate", file.name).stderr)
        self.assertGreater(count, 0)


if __name__ == "__main__":
    unittest.main()
