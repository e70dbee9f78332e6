"""mutate.py draws wrong edits of code alone, the same for the same seed, tells which of them the tests of a small project
notice, goes on where it stopped, and leaves every file as it was."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import wrong_edits  # noqa: E402


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)

    def write(self, file: str, text: str, executable: bool = False) -> pathlib.Path:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if executable else 0o644)
        return path

    def edits(self, body: str) -> set[tuple[str, str]]:
        """Returns kind and new line of each edit of the lines of a body."""
        self.write("src/core/a.cpp", "void f(int x) {\n" + body + "\n" + "}\n" * (1 + body.count("{") - body.count("}")))
        return {(place.kind, place.after) for line in wrong_edits.places(self.root, "src/core/a.cpp") for place in line}


class FindEdits(Folder):
    def test_each_kind(self):
        for line, kind, after in (
                ("if (x < 2) {", "comparison", "if (x <= 2) {"), ("g(x >= y);", "comparison", "g(x > y);"),
                ("if (x == y.z()) {", "comparison", "if (x != y.z()) {"), ("return x && y;", "and, or", "return x || y;"),
                ("if (x ||\n    y) {", "and, or", "if (x &&"), ("const int z = x + y;", "arithmetic", "const int z = x - y;"),
                ("x -= y;", "arithmetic", "x += y;"), ("int z = x * y;", "arithmetic", "int z = x / y;"),
                ("int z = x[0];", "integer", "int z = x[1];"), ("bool z = true;", "boolean", "bool z = false;"),
                ("int z = std::min<int>(x, y);", "min, max", "int z = std::max<int>(x, y);"),
                ("int z = std::max({x, y});", "min, max", "int z = std::min({x, y});"),
                ("if (!x.empty()) {", "not", "if (x.empty()) {"), ("int z = g(x, a->y(), b);", "arguments", "int z = g(a->y(), x, b);"),
                ('int z = x ? A::b(1, 2) : "c";', "branches", 'int z = x ? "c" : A::b(1, 2);'),
                ("g(x ? y : z, u);", "branches", "g(x ? z : y, u);"), ("a->g(x, [&] { h(); });", "statement", "{}"),
                ("a::g<int, b>(x);", "statement", "{}"), ("x.y_ |= z;  // why", "statement", "{}  // why"),
                ("if (x) continue;", "statement", "if (x) {}"), ("if (x) {\n} else if (x) return y;", "statement", "} else if (x) {}"),
                ("else x = y;", "statement", "else {}"), ("if (x) {\n  return;\n}", "statement", "{}"),
                ("if (x)\n  throw y;", "statement", "{}")):
            self.assertIn((kind, after), self.edits(line))

    def test_nothing_in_texts_comments_templates_declarations_and_checks(self):
        for line in ('// x < 2 && true', '/* 1\n 2 < x */', 'auto z = "1 < 2 && true";', "auto z = R\"(1 < 2)\";", "auto z = '1';",
                     "#define A 1 < 2", "#include <a/1>", "#if 1\nx = 2;\n#else\nx = 3;\n#endif", "std::array<int, 3> z;",
                     "auto z = g<true, A<1>>();", "const Lock lock(x);", "int* z = &y;", "auto&& z = *y;", "return x;",
                     'auto z = "a" + x + "b";', "auto z = x + '/';", "auto z = folder / name;", "auto z = 0x1F;",
                     "auto z = 1.5;", "GPUTRAIN_ASSERT(x > 1);", "x.reserve(2);", 'auto z = x ? "a" : "b";',
                     "auto z = g(x, x);"):
            self.assertEqual(self.edits(line), set(), line)

    def test_nothing_outside_of_bodies(self):
        self.write("include/gputrain/core/a.hpp", "constexpr int kA = 1;\nint f(int x = 1, bool y = true);\nstruct A {\n  int x = 1;\n};\n"
                   "inline int g() { return 5; }\n")
        found = wrong_edits.places(self.root, "include/gputrain/core/a.hpp")
        self.assertEqual([(place.line, place.after) for line in found for place in line], [(6, "inline int g() { return 6; }")])

    def test_a_statement_inside_of_an_expression_stays(self):
        self.assertEqual(self.edits("const auto z = g(x,\n  h(y));"), set())


class Draw(Folder):
    def setUp(self):
        super().setUp()
        for room, lines in (("core", 300), ("data", 100), ("ops/cuda", 900)):
            self.write(f"src/{room}/a.cpp", "void f(int x) {\n" + "  x = x + 1;\n" * lines + "}\n")

    def drawn(self, seed=1, rooms=(), changed=None, count=200) -> list[wrong_edits.Place]:
        return [place for place, _ in zip(wrong_edits.draw(self.root, seed, rooms, changed), range(count))]

    def test_the_same_seed_draws_the_same(self):
        self.assertEqual(self.drawn(), self.drawn())
        self.assertNotEqual(self.drawn(), self.drawn(seed=2))

    def test_rooms_are_drawn_by_their_lines_and_no_line_twice(self):
        places = self.drawn()
        share = sum(place.file == "src/core/a.cpp" for place in places) / len(places)
        self.assertTrue(0.6 < share < 0.9, share)
        self.assertEqual(len({(place.file, place.line) for place in places}), 200)
        self.assertEqual(len(self.drawn(count=1000)), 400)
        self.assertEqual({place.file for place in self.drawn(rooms=["data"])}, {"src/data/a.cpp"})

    def test_only_changed_lines(self):
        def git(*words):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.root, check=True, capture_output=True)

        git("init")
        git("add", "src")
        git("commit", "-m", "a")
        file = self.root / "src/core/a.cpp"
        lines = file.read_text().splitlines()
        lines[4], lines[10:11] = "  x = x + 7;", ["  x = 8;", "  x = 9;"]
        file.write_text("\n".join(lines) + "\n")
        changed = wrong_edits.changed_lines(self.root, "HEAD")
        self.assertEqual({(place.file, place.line) for place in self.drawn(changed=changed)}, {("src/core/a.cpp", line) for line in (5, 11, 12)})


SOURCE = """int larger(int x, int y) { return x > y ? x : y; }
int unchecked(int x) {
  x = x + 1;
  return x;
}
"""
TEST = """#include "gputrain/core/a.hpp"
int main() { return larger(1, 2) == 2 && larger(4, 3) == 4 ? 0 : 1; }
"""
NINJA = """rule cxx
  command = g++ -Iinclude -Wall -Wextra -Werror $in -o $out
build tests/core/core_test: cxx ../../tests/core/a_test.cpp ../../src/core/a.cpp
"""


class Run(Folder):
    """Runs a copy of the script on a project of one source and one test."""

    def setUp(self):
        super().setUp()
        for name in ("mutate.py", "wrong_edits.py", "check_sizes.py"):
            self.write(f"scripts/{name}", (SCRIPTS / name).read_text())
        self.source = self.write("src/core/a.cpp", SOURCE)
        self.write("include/gputrain/core/a.hpp", "int larger(int x, int y);\n")
        self.write("tests/core/a_test.cpp", TEST)
        self.build = self.root / "build/release"
        self.write("build/release/build.ninja", NINJA.replace("-Iinclude", f"-I{self.root}/include"))
        self.write("build/release/tests/core/core_test", "", executable=True)  # ctest names the command of what is there
        self.write("build/release/CTestTestfile.cmake", f'add_test(core "{self.build}/tests/core/core_test")\n')

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(self.root / "scripts/mutate.py"), "--json", str(self.root / "results.json"), *words]

    def run_script(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(*words), capture_output=True, text=True)

    def results(self) -> list[dict]:
        return json.loads((self.root / "results.json").read_text())

    def test_survivors_are_told_files_restored_and_results_kept(self):
        done = self.run_script("--count", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.source.read_text(), SOURCE)
        by_line = {one["line"]: one["result"] for one in self.results()}
        self.assertEqual((by_line[1], by_line[3]), ("caught", "survived"), done.stdout)
        self.assertIn("src/core/a.cpp:3: ", done.stdout)
        self.assertIn("2 mutants: 1 caught, 1 survived (50 % caught), 0 did not compile\n", done.stdout)

        kept = self.results()
        again = self.run_script("--count", "3", "--fail-below", "60")
        self.assertEqual((again.returncode, self.results()), (1, kept), again.stderr)

    def test_a_long_program_has_parts_each_with_its_environment(self):
        self.write("tests/program/app_test.cpp", "#include <cstdlib>\nint unchecked(int x);\n"
                   'int main() { return std::getenv("PART") && unchecked(1) != 2; }\n')
        sources = "../../tests/program/app_test.cpp ../../src/core/a.cpp"
        with open(self.build / "build.ninja", "a") as rules:
            rules.write(f"build tests/program/app_test: cxx {sources}\n")
        program = self.write("build/release/tests/program/app_test", "", executable=True)
        with open(self.build / "CTestTestfile.cmake", "a") as tests:
            tests.write(f'add_test(app_1 "{program}")\nset_tests_properties(app_1 PROPERTIES ENVIRONMENT_MODIFICATION "PART=set:1")\n')
        done = self.run_script("--count", "3")
        self.assertEqual({one.get("by") for one in self.results() if one["line"] == 3}, {"app_1"}, done.stdout + done.stderr)

    def test_a_test_that_fails_without_an_edit_says_nothing(self):
        self.write("tests/core/a_test.cpp", "int main() { return 1; }\n")
        done = self.run_script("--count", "1")
        self.assertIn("the test core fails without an edit (exit code 1), so", done.stdout)
        self.assertIn("0 caught, 1 survived", done.stdout)

    def test_a_killed_one_leaves_an_edit_for_the_next_to_undo_and_a_stopped_one_none(self):
        self.write("tests/core/a_test.cpp", "#include <unistd.h>\nint main() { sleep(100); }\n")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.await_test(process.pid)
            self.assertNotEqual(self.source.read_text(), SOURCE)
            process.send_signal(number)
            process.wait(20)
            self.assertEqual(self.source.read_text() == SOURCE, number != signal.SIGKILL)
        left = subprocess.run(["pgrep", "-f", str(self.build / "tests/core/core_test")], capture_output=True, text=True).stdout.split()
        for pid in left:  # of the killed one alone
            os.kill(int(pid), signal.SIGKILL)
        self.assertEqual(len(left), 1)
        self.run_script("--count", "0")
        self.assertEqual(self.source.read_text(), SOURCE)

    def await_test(self, parent: int) -> None:
        for _ in range(1000):
            children = subprocess.run(["pgrep", "-P", str(parent), "core_test"], capture_output=True).returncode
            if children == 0:
                return
            time.sleep(0.02)
        self.fail("the test has not begun")


class RunProcess(unittest.TestCase):
    def test_nothing_is_left_of_what_takes_too_long(self):
        with tempfile.TemporaryDirectory() as folder:
            program = f"import signal, sys\nsys.path.insert(0, {str(SCRIPTS)!r})\nimport ctypes, mutate\nctypes.CDLL(None).prctl(36, 1)\n" \
                      f"print(mutate.run(['sh', '-c', 'echo out; setsid sleep 77.5 & sleep 77.5'], 0.5)[::2])"
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)
        self.assertEqual(done.stdout, "(None, 'out\\n')\n", done.stderr)
        self.assertNotEqual(subprocess.run(["pgrep", "-f", "sleep 77.5"], capture_output=True).returncode, 0)


if __name__ == "__main__":
    unittest.main()
