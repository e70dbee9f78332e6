"""Files that `gputrain export --format slurm` and the like write: the schedulers' own types accept them, no text of a
user changes what they mean, no secret is in them, and their commands train as one process does.

usage: scheduler_files_test.py GPUTRAIN
"""
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "GPUTRAIN_METADATA_URL": "aws=http://127.0.0.1:9"}
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from warm_program import Program  # noqa: E402

PROGRAM = Program(sys.argv.pop(1))
try:
    import kubernetes_validate
    import yaml
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet
    from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
except ImportError as missing:
    if os.environ.get("CI"):
        raise
    print(f"skipped: {missing}; scripts/requirements-test.txt lists what is needed")
    sys.exit(77)

yaml.SafeLoader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))  # Ansible's
JOB = """schema: 1
precision: fp64
model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 16}}
data:
  train: {path: TEXT, format: text}
  val: {split: 10%}
train: {max_steps: 20, global_batch_size: 8}
optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.1}
"""
CPU = "device: cpu\nlog: {interval: 1}\n"
GPUS = ("launch: {nnodes: 2, nproc_per_node: 8, grace: 100s}\nlimits: {max_duration: 2h}\n"
        "log: {metrics_port: 9400, metrics_host: 0.0.0.0}\n")
ELASTIC = ("launch: {nnodes: '2:4', nproc_per_node: 8}\nenv: {HF_TOKEN: '${env:HF_TOKEN}', SIZE: '${env:SIZE:-3}'}\n"
           "# ${env:NOBODY}\nlog: {wandb: {mode: online}, metrics_port: 9400, webhook: '${env:HOOK_SECRET}'}\n")
NODES = {"cpu": (CPU, 1, 0), "gpus": (GPUS, 2, 8), "elastic": (ELASTIC, 4, 8)}
SECRET = "value-that-stays-here"
CONTAINERS = ("k8s", "jobset", "trainjob", "sky", "dstack", "compose")
FORMATS = (*CONTAINERS, "slurm", "ansible")
FATAL, AGAIN = [2, 3, 4, 5, 6, 93], [138]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def kinds(text):
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def replaced(word, names):
    """What a scheduler makes of a word: $$ is a $, and where it finds the name of a variable it has another value."""
    return re.sub(rf"\$\$|{names}", lambda found: "$" if found[0] == "$$" else "REPLACED", word)


def in_kubernetes(word):
    return replaced(word, r"\$\(\w+\)")


def in_compose(word):
    return replaced(word, r"\$\{?\w+\}?")


def pod_of(found):
    job = found["Job"] if "Job" in found else found["JobSet"]["spec"]["replicatedJobs"][0]["template"]
    return job["spec"]["template"]["spec"]


class SchedulerFiles(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="gputrain-schedulers-")
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        (self.folder / "text.txt").write_text("".join(
            f"the {i % 10} cats sat on the mat {i % 7} times;\n" for i in range(200)))

    def job(self, more, name="job.yaml"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(JOB.replace("TEXT", str(self.folder / "text.txt")) + more)
        return path

    def export(self, job, form, *options, rc=0, volume=True):
        words = ["export", job, "--format", form, *options]
        if form in CONTAINERS and "--image" not in options:
            words += ["--image", "registry.example/gputrain:1"]
        if form in CONTAINERS and volume:
            words += ["--volume", f"shared:{self.folder}"]
        run = PROGRAM.run(*words)
        self.assertEqual(run.returncode, rc, run.stdout + run.stderr)
        return run.stdout if rc == 0 else " ".join(run.stderr.split())

    made = []  # what each() gives

    def each(self):
        """Every format of three jobs: its name, the text, nodes and GPUs of each."""
        if not self.made:
            self.make()
        return self.made

    def make(self):
        variables = {"HF_TOKEN": SECRET, "HOOK_SECRET": SECRET, "WANDB_API_KEY": SECRET, "SIZE": SECRET}
        PROGRAM.environment |= variables
        for name, (more, nodes, gpus) in NODES.items():
            job = self.job(more, f"{name}.yaml")
            for form in FORMATS:
                if form == "compose" and nodes > 1:
                    continue
                self.made.append((form, self.export(job, form), nodes, gpus))
        for name in variables:
            del PROGRAM.environment[name]

    def test_the_list_has_each_format(self):
        listed = PROGRAM.run("list", "scheduler").stdout
        self.assertEqual(sorted(re.findall(r"^(\w+)  ", listed, re.M)), sorted(FORMATS))

    def test_nothing_is_left_open_and_no_secret_is_told(self):
        for form, text, _, _ in self.each():
            self.assertNotRegex(text, "@[A-Z]+@")
            self.assertNotIn(SECRET, text)
            self.assertNotIn("NOBODY:", text)
            self.assertTrue(all(len(line.rstrip()) == len(line) for line in text.splitlines()), text)

    def test_kubernetes_accepts_its_files(self):
        for form, text, nodes, gpus in self.each():
            if form not in ("k8s", "jobset", "trainjob"):
                continue
            found = kinds(text)
            for kind, one in found.items():
                if kind in ("JobSet", "TrainJob"):
                    model = JobsetV1alpha2JobSet if kind == "JobSet" else TrainerV1alpha1TrainJob
                    self.assertEqual(model.from_dict(one).to_dict(), one, "a field that the API does not have")
                else:
                    kubernetes_validate.validate(one, "1.31", strict=True)
            if form == "trainjob":
                trainer = found["TrainJob"]["spec"]["trainer"]
                self.assertEqual((trainer["numNodes"], trainer["numProcPerNode"]), (nodes, max(gpus, 1)))
                continue
            if form == "jobset":
                job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"},
                       "spec": found["JobSet"]["spec"]["replicatedJobs"][0]["template"]["spec"]}
                kubernetes_validate.validate(job, "1.31", strict=True)
                rules = found["JobSet"]["spec"]["failurePolicy"]["rules"]
                self.assertEqual([(r["action"], r["onJobFailureReasons"]) for r in rules],
                                 [("FailJobSet", ["PodFailurePolicy"])])
            else:
                job = found["Job"]
            spec, pod = job["spec"], pod_of(found)
            self.assertEqual([spec[key] for key in ("completionMode", "completions", "parallelism")],
                             ["Indexed", nodes, nodes])
            rules = [(r["action"], r.get("onExitCodes", {}).get("values")) for r in spec["podFailurePolicy"]["rules"]]
            self.assertEqual(rules, [("FailJob", FATAL), ("Ignore", None), ("Ignore", AGAIN)])
            limits = pod["containers"][0].get("resources", {}).get("limits")
            self.assertEqual(limits, {"nvidia.com/gpu": str(gpus)} if gpus else None)
            self.assertEqual(pod["terminationGracePeriodSeconds"], 130 if nodes == 2 else 330)

    def test_variables_are_named(self):
        for form, text, nodes, _ in self.each():
            if nodes != 4:
                continue
            if form in ("k8s", "jobset"):
                found = kinds(text)
                keys = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in pod_of(found)["containers"][0]["env"]
                        if "secretKeyRef" in one.get("valueFrom", {})}
                self.assertEqual(sorted(keys), ["HF_TOKEN", "HOOK_SECRET", "SIZE", "WANDB_API_KEY"])
                self.assertTrue(keys["SIZE"]["optional"])
            elif form == "sky":
                task = yaml.safe_load(text)
                self.assertEqual(task["secrets"], dict.fromkeys(["HF_TOKEN", "HOOK_SECRET", "WANDB_API_KEY"]))
                self.assertNotIn("envs", task)  # SIZE has a default
            elif form == "dstack":
                self.assertEqual(sorted(yaml.safe_load(text)["env"]), ["HF_TOKEN", "HOOK_SECRET", "WANDB_API_KEY"])
            elif form == "slurm":
                checked = subprocess.run(["bash", "-c", text], env={}, capture_output=True, text=True)
                self.assertRegex(checked.stderr, "HF_TOKEN: export it before sbatch")

    def test_other_formats_say_what_the_job_says(self):
        for form, text, nodes, gpus in self.each():
            if form == "slurm":
                options = dict(re.findall(r"^#SBATCH --([\w-]+)=(.+)$", text, re.M))
                self.assertEqual((options["nodes"], options.get("gpus-per-node", "0")), (str(nodes), str(gpus)))
                self.assertEqual(options["signal"], "B:USR1@130" if nodes == 2 else "B:USR1@330")
                self.assertEqual(options.get("time"), "123" if nodes == 2 else None)
                self.assertEqual(subprocess.run(["bash", "-n"], input=text, text=True).returncode, 0)
            elif form == "sky":
                task = yaml.safe_load(text)
                self.assertEqual(task["num_nodes"], nodes)
                self.assertEqual(task["resources"].get("accelerators", {}).get("H100", 0), gpus)
                self.assertEqual(task["resources"]["job_recovery"]["recover_on_exit_codes"], AGAIN)
            elif form == "dstack":
                task = yaml.safe_load(text)
                self.assertEqual((task["nodes"], task["resources"].get("gpu", 0)), (nodes, gpus))
            elif form == "ansible":
                play, = yaml.safe_load(text)
                self.assertEqual(play["environment"]["PET_NPROC_PER_NODE"], str(max(gpus, 1)))
            elif form == "compose":
                service = yaml.safe_load(text)["services"]["gputrain"]
                self.assertNotIn("deploy", service)
                self.assertEqual(service["stop_grace_period"], "330s")

    def test_the_page_is_told(self):
        texts = {(nodes, form): text for form, text, nodes, _ in self.each()}
        self.assertIn('prometheus.io/port: "9400"', texts[2, "k8s"])
        self.assertNotIn("prometheus.io", texts[4, "k8s"])
        for form in FORMATS:
            if form != "compose":
                self.assertIn("answers on its own host alone", texts[4, form])

    def commands_of(self, form, text):
        """The words that a node runs, after what the scheduler itself replaces."""
        if form in ("k8s", "jobset"):
            return [in_kubernetes(word) for word in pod_of(kinds(text))["containers"][0]["command"]]
        if form == "trainjob":
            script = kinds(text)["TrainJob"]["spec"]["trainer"]["command"][2]
            return shlex.split(in_kubernetes(script).split("&& exec ")[1])
        if form == "compose":
            service = yaml.safe_load(text)["services"]["gputrain"]
            return service["entrypoint"] + [in_compose(word) for word in service["command"]]
        if form == "sky":
            return shlex.split(yaml.safe_load(text)["run"].split("\nexec ")[1])
        if form == "slurm":
            return shlex.split(re.search("^srun --ntasks-per-node=1 (.*) &$", text, re.M)[1])
        script = (yaml.safe_load(text)["commands"][0] if form == "dstack" else
                  next(task for task in yaml.safe_load(text)[0]["tasks"] if task["name"] == "launch")
                  ["ansible.builtin.command"]["argv"][2])
        return shlex.split(re.search(r"code=0; (.*) \|\| code", script)[1])

    def test_any_name_and_path_stays_what_it_is(self):
        label = re.compile("^[a-z]([a-z0-9-]{0,38}[a-z0-9])$")
        for name in ("yes", "null", "a: b", "#x", "it's \"so\"", "two\nlines", "7", "ä", "$(HOME) $$y {{ z }}", "-",
                     "x" * 90):
            job = self.job(CPU, "a: 'b' #x $y/yes {{ z }}.yaml")
            setting = "name=" + json.dumps(name)
            for form in FORMATS:
                with self.subTest(name=name, format=form):
                    text = self.export(job, form, "--set", setting, "--set", "output_dir=runs/x")
                    words = self.commands_of(form, text)
                    file = {"slurm": str(job), "ansible": "job.yaml"}.get(form, "/job/job.yaml")
                    self.assertEqual(words, ["gputrain", "launch", "run", file, "--set", setting, "--set",
                                             "output_dir=runs/x"])
                    if form == "slurm":
                        found = re.search("^#SBATCH --job-name=(.*)$", text, re.M)[1]
                    elif form in ("k8s", "jobset", "trainjob"):
                        found = list(yaml.safe_load_all(text))[-1]["metadata"]["name"]
                        self.assertEqual(kinds(text)["ConfigMap"]["data"]["job.yaml"], job.read_text())
                    else:
                        whole = yaml.safe_load(text)
                        found = (whole[0] if form == "ansible" else whole)["name"]
                    self.assertRegex(found, label)
                    if form == "sky":
                        self.assertEqual(whole["file_mounts"], {"/job/job.yaml": str(job)})
                    elif form == "dstack":
                        self.assertEqual(whole["files"], [f"{job}:/job/job.yaml"])
                    elif form == "compose":
                        source = whole["services"]["gputrain"]["volumes"][0]["source"]
                        self.assertEqual(in_compose(source), str(job))
                    elif form == "ansible":
                        self.assertEqual(whole[0]["vars"]["job"], str(job))

    def test_what_a_file_cannot_hold_is_refused(self):
        job = self.job("log: {interval: 1}\n")
        self.assertIn("--set launch.nproc_per_node=8", self.export(job, "slurm", rc=2))
        cpu = self.job(CPU)
        for form, options, words in (
                ("slurm", ["--image", "x"], "--image is for formats with containers"),
                ("ansible", ["--volume", "a:/b"], "--volume is for formats with containers"),
                ("k8s", ["--dtype", "f32"], "--dtype is nothing that --format k8s uses"),
                ("hf", ["out", "--image", "x"], "--image is nothing that --format hf uses"),
                ("hf", [], "out is required"),
                ("k8s", ["--volume", "work"], "a volume is NAME:/path"),
                ("slurm", ["--set", "launch.hosts=[a, b]"], "--set launch.hosts=null"),
                ("compose", ["--set", "launch.nnodes=2"], "compose starts one machine"),
                ("k8s", ["--set", "log.webhook=https://me:word@host/x"], "a secret in plain text"),
                ("k8s", ["--set", "env.HF_TOKEN=word"], "a secret in plain text"),
                ("slurm", ["--set", "name='a\tb'"], "a character that a line of the file cannot hold")):
            with self.subTest(form=form, options=options):
                self.assertIn(words, self.export(cpu, form, *options, rc=2))
        self.assertIn("--image NAME", PROGRAM.run("export", cpu, "--format", "k8s").stderr)
        self.assertIn("the run folder is in none of the volumes", self.export(cpu, "k8s", rc=2, volume=False))
        more = self.folder / "more.yaml"
        more.write_text(f"include: {cpu.name}\nseed: 3\n")
        self.assertIn("gputrain config", self.export(more, "k8s", rc=2))
        self.assertIn(str(more), self.export(more, "slurm"))

    def test_a_file_is_written_where_it_is_asked_for(self):
        job = self.job(CPU)
        self.assertEqual(self.export(job, "slurm", "--output", self.folder / "batch.sh"), "")
        self.assertEqual((self.folder / "batch.sh").read_text(), self.export(job, "slurm"))
        self.assertIn("would overwrite the job", self.export(job, "slurm", "--output", job, rc=2))

    def losses(self, run):
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return [line["train/loss"] for line in lines if line["kind"] == "train"]

    def train(self, form, text, run):
        """Runs what the file says on two nodes, which are two processes here, in the place of the scheduler."""
        port, processes = str(free_port()), []
        for node in (0, 1):
            found = {"MASTER_PORT": port}
            if form in ("k8s", "jobset"):
                container = pod_of(kinds(text))["containers"][0]
                found |= {one["name"]: one["value"] for one in container["env"] if "value" in one}
                first = found["PET_MASTER_ADDR"]  # the name of the first pod
                self.assertRegex(first, r"^[a-z0-9-]+-0\.[a-z0-9-]+$")
                found |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port, "PET_NODE_RANK": str(node)}
                words, folder = container["command"], container["workingDir"]
            elif form == "trainjob":
                trainer = kinds(text)["TrainJob"]["spec"]["trainer"]
                found |= {"PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                          "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port, "PET_NODE_RANK": str(node)}
                words, folder = trainer["command"], "/"
            elif form == "sky":
                task = yaml.safe_load(text)
                found |= {"SKYPILOT_NODE_RANK": str(node), "SKYPILOT_NUM_NODES": str(task["num_nodes"]),
                          "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1", "SKYPILOT_NUM_GPUS_PER_NODE": "0"}
                words, folder = ["sh", "-c", task["run"]], "/"
            elif form == "dstack":
                task = yaml.safe_load(text)
                found |= {"DSTACK_NODE_RANK": str(node), "DSTACK_NODES_NUM": str(task["nodes"]),
                          "DSTACK_MASTER_NODE_IP": "127.0.0.1", "DSTACK_NODES_IPS": "127.0.0.1\n127.0.0.1",
                          "DSTACK_GPUS_PER_NODE": "0"}
                words, folder = ["sh", "-c", *task["commands"]], task["working_dir"]
            else:
                play, = yaml.safe_load(text)
                found |= {"PET_NPROC_PER_NODE": play["environment"]["PET_NPROC_PER_NODE"]}
                found |= {"PET_NNODES": "2", "PET_NODE_RANK": str(node), "PET_MASTER_ADDR": "127.0.0.1",
                          "PET_MASTER_PORT": port}
                launch = next(task for task in play["tasks"] if task["name"] == "launch")
                words, folder = launch["ansible.builtin.command"]["argv"], self.folder
            words = [word.replace("/job/job.yaml", str(self.folder / "job.yaml")) for word in words]
            path = f"{PROGRAM.path.parent}:{os.environ['PATH']}"
            processes.append(subprocess.Popen(["env", *words], cwd=folder, env={**os.environ, **found, "PATH": path},
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        try:
            outputs = [process.communicate(timeout=300)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        self.assertEqual([process.returncode for process in processes], [0, 0], "\n".join(outputs))
        self.assertIn("2 ranks on localhost:1, node 1:1", outputs[0])
        return self.losses(run)

    def test_the_commands_train_as_one_process(self):
        job = self.job(CPU + "launch: {nnodes: 2, nproc_per_node: 1}\n")
        one = PROGRAM.run("run", job, "--output-dir", self.folder / "one")
        self.assertEqual(one.returncode, 0, one.stderr)
        expected = self.losses(self.folder / "one")
        self.assertEqual(len(expected), 20)
        for form in ("k8s", "jobset", "trainjob", "sky", "dstack", "ansible"):
            with self.subTest(form):
                run = self.folder / f"runs/{form}"
                found = self.train(form, self.export(job, form, "--set", f"output_dir=runs/{form}"), run)
                self.assertEqual(len(found), 20)
                for a, b in zip(expected, found):
                    self.assertAlmostEqual(a, b, delta=1e-9)


if __name__ == "__main__":
    unittest.main()
