"""The Dockerfile and the compose files name only existing things, and the checker finds things that do not exist."""
import pathlib
import unittest

import dockerfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker/Dockerfile").read_text()


class OurDockerfile(unittest.TestCase):
    def test_has_no_problems(self):
        self.assertEqual(dockerfile.problems(TEXT, ROOT), [])

    def test_has_the_stages_that_its_readme_builds(self):
        names = [stage.name for stage in dockerfile.read(TEXT).stages]
        readme = (ROOT / "docker/README.md").read_text()
        self.assertEqual(names, ["build", "run", "node"])
        for name in names[1:]:
            self.assertIn(f"--target {name}", readme)

    def test_keeps_chosen_kernels_in_a_volume_of_its_user(self):
        cache = "/home/gputrain/.cache"
        self.assertRegex((ROOT / "docker/prepare.sh").read_text(), f"install -d -o gputrain -g gputrain .*{cache}\n")
        self.assertIn(f"-v gputrain-cache:{cache}", (ROOT / "docker/README.md").read_text())
        self.assertIn(f"cache:{cache}", (ROOT / "docker/compose.gpu.yaml").read_text())

    def test_is_where_compose_looks_for_it(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("PyYAML is missing: run scripts/setup.sh --tests")
        compose = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
        over = yaml.safe_load((ROOT / "docker/compose.gpu.yaml").read_text())
        self.assertEqual(over["services"].keys(), compose["services"].keys())
        arguments = dockerfile.read(TEXT).arguments.keys() | {"DEVICE"}
        for service in [*compose["services"].values(), *over["services"].values()]:
            build = service["build"]
            self.assertLessEqual(build["args"].keys(), arguments)
            self.assertIn(build.get("target", "node"), ["node"])
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                there = (ROOT / "docker" / source).exists() if source.startswith(".") else source in compose["volumes"] | over["volumes"]
                self.assertTrue(there, volume)
        self.assertTrue((ROOT / "docker" / compose["services"]["node0"]["build"]["context"] /
                         compose["services"]["node0"]["build"]["dockerfile"]).exists())


class TheCheck(unittest.TestCase):
    """Each change made here breaks a build or a container; the checker must report it."""

    def expect(self, old: str, new: str, problem: str):
        self.assertIn(old, TEXT)
        found = dockerfile.problems(TEXT.replace(old, new, 1), ROOT)
        self.assertTrue(any(problem in one for one in found), found)

    def test_finds_a_source_that_does_not_exist(self):
        self.expect("docker/prepare.sh /tmp", "docker/prepair.sh /tmp", "COPY finds no docker/prepair.sh")

    def test_finds_a_source_that_is_ignored(self):
        self.expect("scripts/steps.sh", ".git/HEAD", ".dockerignore hides it")

    def test_finds_an_undeclared_argument(self):
        self.expect("ARG DEVICE=cuda\n", "", "uses DEVICE")
        self.expect("ARG BASE=", "ARG BASIS=", "uses BASE")

    def test_finds_a_script_that_does_not_exist(self):
        self.expect("RUN docker/assemble.sh", "RUN docker/put_together.sh", "docker/put_together.sh: is no script")
        self.expect("RUN /tmp/prepare.sh run", "RUN /tmp/prepare run", "/tmp/prepare: is no script")

    def test_finds_a_base_without_a_version(self):
        self.expect("nvidia/cuda:13.0.2-base-ubuntu24.04", "nvidia/cuda", "give it a version")
        self.expect("BUILD_BASE=ubuntu:24.04", "BUILD_BASE=ubuntu:latest", "give it a version")

    def test_finds_a_stage_that_does_not_exist(self):
        self.expect("--from=build", "--from=builder", "takes from builder")

    def test_finds_that_root_is_who_it_starts_as(self):
        self.expect("USER gputrain\nWORKDIR", "WORKDIR", "is started by root")
        self.expect("USER gputrain\nEXPOSE", "EXPOSE", "is started by root")

    def test_finds_a_shell_between_a_signal_and_the_program(self):
        self.expect('["tini", "--", "gputrain"]', "tini -- gputrain", "write it in brackets")


if __name__ == "__main__":
    unittest.main()
