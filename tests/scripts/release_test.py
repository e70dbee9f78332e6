"""scripts/release.sh releases a small repository with the files that name the version here, and refuses what is no release."""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES_VERSION = ["CMakeLists.txt", "README.md", "README.zh-CN.md", "configs/install.md"]
FILES = [*NAMES_VERSION, ".gitignore", "scripts/release.sh", "scripts/steps.sh"]
VERSION = re.search(r"^project\(gputrain VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
NEXT = "9.10.0"
CHANGES = "# Changelog\n\n## [Unreleased]\n\n### Added\n- Runs `$HOME` & 'more'.\n"
# Makes packages as scripts/package.sh does, of nothing but a library with the stamp.
PACKAGE = r"""#!/usr/bin/env bash
set -euo pipefail
[[ $1 == --c* && $2 == --into ]]
version=$(sed -n 's/^project(gputrain VERSION \([^ ]*\).*/\1/p' CMakeLists.txt)
[[ $1 == --cuda ]] || version+=+cpu
mkdir -p "$3" "gputrain-$version/lib"
printf 'a\0gputrain\t%s\nheaders of gputrain\t0123abcd\nLibTorch\t2.11.0\ncompiler\tGCC 12\n\0b' "$version" >"gputrain-$version/lib/libgputrain.so"
tar -czf "$3/gputrain-$version-linux-x86_64.tar.gz" "gputrain-$version"
rm -r "gputrain-$version"
echo wheel >"$3/gputrain-$version-py3-none-manylinux_2_35_x86_64.whl"
cd "$3"
sha256sum gputrain-* >SHA256SUMS
"""


class Release(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gputrain_release_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.root = self.folder / "repository"
        for name in FILES:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        (self.root / "CHANGELOG.md").write_text(CHANGES + "\n## [0.0.1] - 2020-01-01\n\n- Old.\n")
        self.package(PACKAGE)
        self.git("init", "--quiet")
        for name, value in (("user.name", "Tester"), ("user.email", "tester@example.org")):
            self.git("config", name, value)
        self.commit()

    def package(self, text: str):
        (self.folder / "package").write_text(text)
        (self.folder / "package").chmod(0o755)

    def git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "A state")

    def release(self, *words: str, tested: str = "HEAD") -> tuple[int, str]:
        environment = {**os.environ, "GPUTRAIN_PACKAGE": str(self.folder / "package")}
        done = subprocess.run([self.root / "scripts/release.sh", *words, "--tested", tested], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def must(self, *words: str) -> str:
        code, output = self.release(*words)
        self.assertEqual(code, 0, output)
        return output

    def refuses(self, words: list[str], what: str, **options):
        before = self.state()
        code, output = self.release(*words, **options)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, what)
        self.assertEqual(self.state(), before)

    def state(self) -> tuple[str, ...]:
        return self.git("rev-parse", "HEAD"), self.git("status", "--porcelain"), self.git("diff"), self.git("tag")

    def test_sets_the_version_everywhere_cuts_the_changelog_and_tags(self):
        self.must(NEXT)
        self.assertEqual(self.git("describe", "--dirty"), f"v{NEXT}")
        self.assertIn(f"gputrain VERSION {NEXT} ", (self.root / "CMakeLists.txt").read_text())
        for name in NAMES_VERSION:
            text = (self.root / name).read_text()
            self.assertNotRegex(text, rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])", name)
            self.assertIn(NEXT, text, name)
        self.assertRegex((self.root / "CHANGELOG.md").read_text(),
                         rf"## \[Unreleased\]\n\n## \[{NEXT}\] - 20\d\d-\d\d-\d\d\n\n### Added\n- Runs .*\n\n## \[0.0.1\]")
        self.assertIn("CHANGELOG.md", self.git("show", "--stat", "HEAD"))

    def test_writes_packages_checksums_and_notes(self):
        self.must(NEXT)
        into = self.root / "dist" / NEXT
        packages = {path.name for path in into.glob("gputrain-*")}
        self.assertEqual(packages, {f"gputrain-{NEXT}{build}{rest}" for build in ("", "+cpu") for rest in
                                    ("-linux-x86_64.tar.gz", "-py3-none-manylinux_2_35_x86_64.whl")})
        sums = dict(reversed(line.split()) for line in (into / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sums, {name: hashlib.sha256((into / name).read_bytes()).hexdigest() for name in packages})
        notes = (into / "NOTES.md").read_text()
        for text in (f"# gputrain {NEXT}\n", "- Runs `$HOME` & 'more'.\n", "glibc 2.35", "torch 2.11.0", *packages,
                     f"gputrain\t{NEXT}\nheaders of gputrain\t0123abcd\nLibTorch\t2.11.0\ncompiler\tGCC 12\n"):
            self.assertIn(text, notes)
        self.assertNotIn("- Old.", notes)

    def test_makes_the_packages_of_one_build(self):
        self.must(NEXT, "--cpu")
        self.assertEqual(len(list((self.root / "dist" / NEXT).glob("gputrain-*+cpu-*"))), 2)
        self.assertEqual(len(list((self.root / "dist" / NEXT).glob("gputrain-*"))), 2)

    def test_a_dry_run_says_what_it_would_do_and_changes_nothing(self):
        before = self.state()
        output = self.must(NEXT, "--dry-run")
        for text in (f"{NEXT} instead of {VERSION}", "1 entries of CHANGELOG.md", f"v{NEXT}", "--cuda --cpu"):
            self.assertIn(text, output)
        self.assertEqual(self.state(), before)
        self.assertFalse((self.root / "dist").exists())
        self.refuses([VERSION.replace(".", ""), "--dry-run"], "is no version")

    def test_the_first_release_may_have_the_version_that_stands_there(self):
        self.must(VERSION)
        self.assertEqual(self.git("tag"), f"v{VERSION}")

    def test_refuses_a_version_that_is_not_higher(self):
        self.git("tag", f"v{NEXT}")
        for version in (NEXT, "9.9.9"):
            self.refuses([version], "the tag v9.10.0 exists" if version == NEXT else "not higher than 9.10.0, the last release")
        self.git("tag", "--delete", f"v{NEXT}")
        self.refuses(["0.0.9"], f"lower than {VERSION}, which CMakeLists.txt has")

    def test_refuses_a_changelog_without_entries(self):
        (self.root / "CHANGELOG.md").write_text(CHANGES.split("### ")[0] + "## [0.0.1] - 2020-01-01\n\n- Old.\n")
        self.commit()
        self.refuses([NEXT], "no entries under .Unreleased")

    def test_refuses_changes_that_are_not_committed(self):
        (self.root / "new.txt").write_text("new\n")
        self.refuses([NEXT], "not committed")

    def test_refuses_a_state_that_was_not_tested(self):
        tested = self.git("rev-parse", "HEAD")
        (self.root / "new.txt").write_text("new\n")
        self.commit()
        self.refuses([NEXT], "what was tested is", tested=tested)
        self.refuses([NEXT], "what was tested is nothing", tested="nothing")

    def test_changes_nothing_if_the_packages_cannot_be_made(self):
        self.package("#!/bin/sh\nexit 1\n")
        self.refuses([NEXT], "Nothing was released")
        self.package(PACKAGE.replace("headers of", "heads of").replace("LibTorch", "Torch").replace("compiler", "built"))
        self.refuses([NEXT], "no stamp for plug-ins")
        self.package(PACKAGE.replace("sha256sum gputrain-*", "sha256sum gputrain-* | sed s/^./x/"))
        self.refuses([NEXT], "Nothing was released")


if __name__ == "__main__":
    unittest.main()
