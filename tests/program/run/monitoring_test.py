"""A real Prometheus, Alertmanager and webhook watch a run of two ranks, with the files in configs/monitoring.

usage: monitoring_test.py GPUTRAIN FAKE_NVML
"""
import contextlib
import http.server
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request
from pathlib import Path

PROGRAM, FAKE_NVML = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
MONITORING = Path(__file__).resolve().parents[3] / "configs/monitoring"
NEEDED = ("prometheus", "prometheus-alertmanager", "promtool")
SECONDS = 60


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read().decode()


def until(condition, what):
    """The first true result. Asks again and again: what it waits for is in other processes."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if result := condition():
                return result
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {SECONDS} s")


class Webhook(http.server.BaseHTTPRequestHandler):
    received = {"/": queue.Queue(), "/own": queue.Queue()}  # from Alertmanager, and from gputrain itself

    def do_POST(self):
        self.received[self.path].put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Monitoring(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.ports = {name: free_port() for name in ("run", "prometheus", "alertmanager")}
        self.webhook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
        threading.Thread(target=self.webhook.serve_forever, daemon=True).start()
        self.addCleanup(self.webhook.server_close)
        self.addCleanup(self.webhook.shutdown)

    def start(self, *command, **variables):
        log = open(self.folder / f"{Path(command[0]).name}.log", "w")
        process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, env=os.environ | variables)
        self.addCleanup(lambda: (process.kill(), process.wait(), log.close()))
        return process

    def changed(self, name, **replaced):
        """A copy of a file in configs/monitoring; each text is replaced by what follows it."""
        text = (MONITORING / name).read_text()
        for old, new in replaced["texts"]:
            self.assertIn(old, text)
            text = text.replace(old, new)
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def start_run(self):
        (self.folder / "text.txt").write_text("the cat sat on the mat\n" * 2000)
        (self.folder / "job.yaml").write_text("""
schema: 1
name: watched
precision: fp32
model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 16}}
data: {train: {path: text.txt, format: text}, val: {split: 5%}}
train: {max_steps: 1000000, global_batch_size: 8}
eval: {interval: 20}
optimizer: {type: adamw, lr: 1e-3}
log: {interval: 5}
""")
        return self.start(str(PROGRAM), "launch", "--nproc-per-node", "2", "run", "job.yaml", "--set",
                          f"log.metrics_port={self.ports['run']}", "--set",
                          f"log.webhook=http://127.0.0.1:{self.webhook.server_port}/own",
                          "--set", "alerts=[{metric: gpu/temperature_celsius, value: 85}]", GPUTRAIN_NVML=str(FAKE_NVML),
                          FAKE_NVML_STATE=str(self.folder / "gpus"))

    def start_monitoring(self):
        address = lambda name: f"localhost:{self.ports[name]}"
        self.changed("alerts.yml", texts=[("> 300", "> 2"), ("for: 1m", "for: 0s")])
        config = self.changed("prometheus.yml", texts=[
            ("localhost:9400", address("run")), ("localhost:9093", address("alertmanager")), ("5s", "1s")])
        alertmanager = self.changed("alertmanager.yml", texts=[
            ("http://localhost:9099/", f"http://127.0.0.1:{self.webhook.server_port}/"), ("group_wait: 5s", "group_wait: 0s")])
        self.start("prometheus-alertmanager", f"--config.file={alertmanager}", f"--storage.path={self.folder}/alerts",
                   f"--web.listen-address=127.0.0.1:{self.ports['alertmanager']}", "--cluster.listen-address=")
        self.start("prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder}/series",
                   f"--web.listen-address=127.0.0.1:{self.ports['prometheus']}")

    def query(self, text):
        answer = json.loads(get(self.ports["prometheus"], "/api/v1/query?query=" + urllib.parse.quote(text)))
        return answer["data"]["result"]

    def told(self, path):
        """Returns the next message, but those about the disk of the machine that tests."""
        told = Webhook.received[path].get(timeout=SECONDS)
        while "DiskFull" in str(told) or "disk/free_share" in str(told):
            told = Webhook.received[path].get(timeout=SECONDS)
        return told

    def expect_told(self, name, words):
        told = self.told("/")
        self.assertEqual([alert["labels"]["alertname"] for alert in told["alerts"]], [name])
        self.assertIn(words, told["alerts"][0]["annotations"]["summary"])

    def test_heat_and_a_stall_reach_the_webhook(self):
        self.start_run()
        self.start_monitoring()
        page = until(lambda: [text for text in [get(self.ports["run"], "/metrics")] if "gputrain_val_loss" in text],
                     "an evaluation")[0]
        subprocess.run(["promtool", "check", "metrics"], input=page, text=True, check=True)
        panels = json.loads((MONITORING / "grafana.json").read_text())["panels"]
        queries = [target["expr"] for panel in panels for target in panel["targets"]]
        self.assertGreater(len(queries), 20)
        for text in queries:
            until(lambda: self.query(text.replace("$run", ".*")), text)
        (self.folder / "gpus").write_text("temperature 90\n")
        self.expect_told("GpuHot", "GPU of rank 1")
        self.assertEqual(self.told("/own")["text"], "watched: alert gpu/temperature_celsius > 85: now 90")
        rank = next(p for p in Path("/proc").iterdir() if p.name.isdigit() and self.is_rank(p, "1"))
        os.kill(int(rank.name), signal.SIGSTOP)
        self.addCleanup(lambda: os.kill(int(rank.name), signal.SIGCONT))
        self.expect_told("TrainingStalled", "has made no step for")

    def is_rank(self, process, number):
        with contextlib.suppress(OSError):
            environment = (process / "environ").read_bytes().split(b"\0")
            return f"RANK={number}".encode() in environment and str(self.folder) in str((process / "cwd").resolve())
        return False


if missing := [name for name in NEEDED if shutil.which(name) is None]:
    print("skipped: not installed: " + ", ".join(missing))
    sys.exit(77)
unittest.main()
