"""Files that `gputrain export --format sky` and the like write, read by the programs for which they are written.

SkyPilot, dstack and Ansible want other packages than the tests: each has an environment of its own, made by pip beside
the program (700 MB). Ansible runs its playbook on two hosts, which are this machine in a namespace of its own, with the
archive of scripts/package.sh. Needs the Python index, and root for Ansible.

usage: scheduler_parsers_test.py GPUTRAIN
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import venv
from pathlib import Path

PROGRAM = Path(sys.argv.pop(1)).resolve()
ROOT = Path(__file__).resolve().parents[3]
BUILD = PROGRAM.parents[1]
JOB = """schema: 1
device: cpu
precision: fp64
model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 16}}
data: {train: {path: TEXT, format: text}, val: {split: 10%}}
train: {max_steps: 20, global_batch_size: 8}
optimizer: {type: adamw, lr: 3e-3}
launch: {nnodes: NODES, nproc_per_node: 1}
log: {interval: 1}
output_dir: FOLDER/run
"""
READ_SKY = """
import sys, sky
task = sky.Task.from_yaml(sys.argv[1])
print(task.num_nodes, *(next(iter(task.resources)).accelerators or {}).values())
"""
READ_DSTACK = """
import sys, yaml
from dstack._internal.core.models.configurations import parse_run_configuration
task = parse_run_configuration(yaml.safe_load(open(sys.argv[1])))
print(task.nodes, task.resources.gpu.count.min)
"""
READ_COMPOSE = """
import json, sys, yaml, jsonschema
from importlib.metadata import distribution
file = yaml.safe_load(open(sys.argv[1]))
del file["name"]  # newer than this copy of the schema
schema = distribution("docker-compose").locate_file("compose/config/compose_spec.json")
jsonschema.validate(file, json.load(open(schema)))
print("valid")
"""


def environment(name: str, *packages: str, alone=()) -> Path:
    """Returns the programs of an environment with these packages, which is made once for each build folder. Those that
    stand alone are installed without what they need."""
    folder = BUILD / "schedulers" / name
    made, wanted = folder / "made", " ".join([*packages, *alone])
    if not made.exists() or made.read_text() != wanted:
        venv.create(folder, clear=True, with_pip=True)
        for options in ([*packages], ["--no-deps", *alone] if alone else []):
            if options:
                subprocess.run([folder / "bin/pip", "install", "-q", *options], check=True)
        made.write_text(wanted)
    return folder / "bin"


class SchedulerParsers(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="gputrain-parsers-", dir="/var/tmp")
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        (self.folder / "text.txt").write_text("the cats sat on the mat;\n" * 200)

    def export(self, form, *options, nodes=2):
        job = self.folder / "job.yaml"
        job.write_text(JOB.replace("TEXT", str(self.folder / "text.txt")).replace("FOLDER", str(self.folder))
                       .replace("NODES", str(nodes)))
        file = self.folder / f"{form}.yaml"
        subprocess.run([PROGRAM, "export", job, "--format", form, "--output", file, *options], check=True)
        return file

    def containers(self, form, **facts):
        return self.export(form, "--image", "registry.example/gputrain:1", "--volume", f"shared:{self.folder}", **facts)

    def must(self, *words, **options):
        done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, **options)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def reads(self, programs, script, file, expected):
        """The script prints what it expects of the file, and refuses the file with a key that nobody knows."""
        printed = self.must(programs / "python", "-c", script, file).splitlines()[-1].strip()
        self.assertEqual(printed, expected)
        file.write_text(file.read_text() + "nobody_knows: 1\n")
        again = subprocess.run([programs / "python", "-c", script, file], capture_output=True)
        self.assertNotEqual(again.returncode, 0, "a key that nobody knows is accepted")

    def test_skypilot_reads_its_task(self):
        programs = environment("sky", "skypilot==0.14.1")
        gpus = ("--set", "device=auto", "--set", "launch.nproc_per_node=8")
        self.reads(programs, READ_SKY, self.export("sky", "--image", "registry.example/gputrain:1", "--volume",
                                                   f"shared:{self.folder}", *gpus), "2 8")

    def test_dstack_reads_its_task(self):
        programs = environment("dstack", "dstack==0.22.5")
        self.reads(programs, READ_DSTACK, self.containers("dstack"), "2 0")

    def test_composes_schema_allows_its_file(self):
        programs = environment("compose", "jsonschema==4.26.0", "PyYAML==6.0.3", alone=["docker-compose==1.29.2"])
        self.reads(programs, READ_COMPOSE, self.containers("compose", nodes=1), "valid")

    def losses(self, run):
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return [line["train/loss"] for line in lines if line["kind"] == "train"]

    @unittest.skipIf(os.geteuid() != 0, "needs root, to have an /opt of its own")
    def test_ansible_installs_and_trains_on_two_hosts(self):
        programs = environment("ansible", "ansible-core==2.19.14")
        play = self.export("ansible")
        self.must(programs / "ansible-playbook", "--syntax-check", "-i", "localhost,", play)
        self.must(ROOT / "scripts/package.sh", "--build", BUILD, "--into", self.folder / "dist")
        archive, = (self.folder / "dist").glob("*.tar.gz")
        hosts = self.folder / "hosts"
        hosts.write_text("".join(f"{name} ansible_host=10.79.0.1 ansible_connection=local "
                                 f"ansible_python_interpreter={programs}/python\n" for name in ("one", "two")))
        # Both hosts have one /opt, which is a folder of this test, and a network that no other test uses.
        (self.folder / "opt").mkdir()
        prepare = (f"mount --bind {self.folder}/opt /opt; ip link set lo up; "
                   "ip link add hosts type veth peer name other; ip link set other up; "
                   'ip addr add 10.79.0.1/24 dev hosts; ip link set hosts up; exec "$@"')
        self.must("unshare", "--mount", "--net", "sh", "-ec", prepare, "sh",
                  programs / "ansible-playbook", "-i", hosts, play, "-e", f"archive={archive}", "-e",
                  f"folder={self.folder}/work", env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertTrue((self.folder / "opt/gputrain/bin/gputrain").exists())
        found = self.losses(self.folder / "run")
        self.must(PROGRAM, "run", self.folder / "job.yaml", "--output-dir", self.folder / "one")
        expected = self.losses(self.folder / "one")
        self.assertEqual(len(expected), 20)
        for a, b in zip(expected, found, strict=True):
            self.assertAlmostEqual(a, b, delta=1e-9)


if __name__ == "__main__":
    unittest.main()
