"""check_sizes.py names each function of more than 70 lines with file and line, and each folder of more than 25 sources, and
accepts lists of keys and tables."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_sizes.py"


def body(lines: int, line: str = "  if (x) f(x);\n") -> str:
    """Returns a body in braces that has so many lines with both of them."""
    return "{\n" + line * (lines - 2) + "}\n"


class CheckFunctions(unittest.TestCase):
    def check(self, code: str, name: str = "src/core/a.cpp") -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / name
            file.parent.mkdir(parents=True)
            file.write_text(code)
            result = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
        lines = result.stdout.splitlines()
        self.assertEqual(result.returncode, 0 if lines == ["functions and folders are small"] else 1, result.stderr)
        return [] if result.returncode == 0 else lines

    def test_seventy_lines_fit_and_one_more_does_not(self):
        self.assertEqual(self.check("void f(int x) " + body(70)), [])
        found = self.check("void g();\n\nvoid f(int x) " + body(71))
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("src/core/a.cpp:3: f has 71 lines"), found)

    def test_each_kind_of_function_is_found(self):
        for head in ("int A::f(int x = {}) const ", "A::f(int x) : a_{x}, b_(x) ", "auto f(int x) -> int ",
                     "template <class T>\nT f(T x) ", "template <int... n>\n__global__ void __launch_bounds__(n) f(int x) ",
                     "class A final : B {\n public:\n  struct C {};\n  void f(int x) ",
                     'extern "C" void f(int x) ', "namespace a {\n/// An enum, a class { and a struct.\nvoid f(int x) "):
            found = self.check(head + body(71), "include/gputrain/core/a.hpp")
            self.assertEqual([line.split(": ")[1].split(" has ")[0] for line in found], ["f"], head)
        self.assertIn("operator==", self.check("bool A::operator==(int x) " + body(71))[0])

    def test_types_and_namespaces_may_be_long(self):
        for head in ("namespace a ", "class A ", "template <class T>\nstruct A : B<T> ", "struct alignas(16) A ", 'extern "C" '):
            self.assertEqual(self.check(head + body(99, "  void f(int);\n")), [], head)

    def test_lists_of_keys_and_tables_may_be_long(self):
        self.assertEqual(self.check("void A::describe(Description<A>& d) " + body(99)), [])
        self.assertEqual(self.check("const A kTable = " + body(99, "  {1, 2},\n")), [])
        self.assertEqual(self.check("A table() {\n  static const A all = " + body(99, "    {1, 2},\n") + ";\n  return all;\n}\n"), [])

    def test_braces_in_texts_and_comments_do_not_count(self):
        texts = 'void f() {\n  a("{", \'{\', 1\'000, R"({)");  // {\n}\n#define OPEN {\n'
        self.assertEqual(self.check(texts + "void g(int x) " + body(70) + "void h(int x) " + body(70)), [])

    def test_a_folder_has_at_most_25_sources(self):
        for count, expected in ((25, []), (26, ["src/core: 26 sources; at most 25, so divide it by what they are about"])):
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "src/core/others").mkdir(parents=True)
                for number in range(count):
                    (pathlib.Path(folder) / f"src/core/{number}.cpp").touch()
                    (pathlib.Path(folder) / f"src/core/others/{number % 25}.hpp").touch()
                result = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
            self.assertEqual([line for line in result.stdout.splitlines() if ":" in line], expected)


if __name__ == "__main__":
    unittest.main()
