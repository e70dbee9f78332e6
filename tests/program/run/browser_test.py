"""The pages of a run, a comparison and a sweep in a headless Chromium: they load nothing from elsewhere, fit a phone, have no
serious finding of axe-core, take texts as texts, and their charts tell values and zoom, by mouse and by keyboard.

usage: browser_test.py GPUTRAIN
"""
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import browser  # noqa: E402

PROGRAM = str(Path(sys.argv.pop(1)).resolve())
HOSTILE = "<img src=x onerror=document.title=1></script>"
AXE = importlib.util.find_spec("axe_playwright_python")
JOB = """
schema: 1
device: cpu
model: {type: mlp}
data: {train: {format: synthetic, samples: 60}, val: {format: synthetic, samples: 30}, image: {size: 8}}
train: {max_steps: 24, global_batch_size: 10}
eval: {interval: 4}
log: {interval: 1}
optimizer: {type: sgd, lr: 0.01}
env: {API_TOKEN: hidden-value}
sweep: {method: asha, trials: 4, parameters: [{key: optimizer.lr, min: 0.001, max: 0.1, scale: log}, {key: optimizer.momentum, values: [0, 0.9]}]}
"""
PLOT = "document.querySelector('.plot')"


def run(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.stderr}")


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        job = cls.folder / "job.yaml"
        job.write_text(JOB)
        for name, rate in (("slow", 0.001), ("fast", 0.1)):
            run("run", job, "--output-dir", cls.folder / name, "--set", f"optimizer.lr={rate}", "--set", "sweep=null",
                "--set", f"name={json.dumps(HOSTILE)}")
        (cls.folder / HOSTILE.replace("/", "")).symlink_to(cls.folder / "fast")
        run("compare", cls.folder / "slow", cls.folder / HOSTILE.replace("/", ""), "--html", cls.folder / "compare.html")
        run("sweep", job, "--output-dir", cls.folder / "sweep")
        cls.pages = {"run": cls.folder / "fast/report.html", "comparison": cls.folder / "compare.html",
                     "sweep": cls.folder / "sweep/sweep.html"}
        cls.browser = browser.Browser().__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def open(self, page, width=1280, dark=False):
        self.browser.look(width, dark=dark)
        self.browser.open(self.pages[page])

    def text(self, selector):
        return self.browser.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def until(self, value):
        """The first value of an expression that is true."""
        return self.browser.run(f"new Promise(done => {{ const look = () => ({value}) ? done({value}) : setTimeout(look, 50); look(); }})")

    def test_load_nothing_and_fit_the_screen(self):
        for page in self.pages:
            for width in (1280, 400):
                with self.subTest(page, width=width):
                    self.open(page, width)
                    self.assertEqual(self.browser.mistakes, [])
                    self.assertEqual([url for url in self.browser.requests if not url.startswith(("file:", "data:"))], [])
                    self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
                    self.assertNotEqual(self.browser.run("document.title"), "1", "a text became markup")

    @unittest.skipUnless(AXE, "axe-playwright-python is not installed")
    def test_have_no_serious_finding_of_axe(self):
        script = (Path(AXE.origin).parent / "axe.min.js").read_text()
        for page in self.pages:
            for width, dark in ((1280, False), (400, True)):
                with self.subTest(page, width=width):
                    self.open(page, width, dark)
                    self.browser.run(script + ";0")
                    found = self.browser.run("axe.run().then(all => all.violations.filter(one => ['serious', 'critical']"
                                             ".includes(one.impact)).map(one => [one.id, one.nodes[0].html]))")
                    self.assertEqual(found, [])

    def test_charts_tell_values_and_zoom(self):
        self.open("comparison")
        self.assertEqual(self.text(".chart h3"), "train/loss")
        x, y, width, height = self.browser.run(f"(({{x, y, width, height}}) => [x, y, width, height])({PLOT}.getBoundingClientRect())")
        self.browser.mouse("mouseMoved", x + width / 2, y + height / 2)
        told = self.text(".legend")
        self.assertRegex(told, r"at step 1\d")
        lines = [json.loads(line) for line in (self.folder / "slow/metrics.jsonl").read_text().splitlines()]
        step = int(re.search(r"at step (\d+)", told)[1])
        value = next(line["train/loss"] for line in lines if line["step"] == step and "train/loss" in line)
        self.assertIn(f"slow {value:.4g}", told)
        self.browser.drag((x + width * 0.4, y + 50), (x + width * 0.7, y + 50))
        first, last = self.browser.run(f"{PLOT}.chart.place.range")
        self.assertGreater(first, 5)
        self.assertLess(last, 20)
        self.assertEqual(self.browser.run("new Set([...document.querySelectorAll('.plot')].map(one => String(one.chart.range(one.chart.shown())))).size"), 1,
                         "all charts show the same steps")
        self.browser.run(f"{PLOT}.focus()")
        self.browser.press("Home")
        said = self.text("[role=status]")
        self.assertRegex(said, rf"^step {int(first) + 1}: slow [\d.]+, .* [\d.]+")
        self.browser.press("ArrowRight")
        self.assertRegex(self.text("[role=status]"), rf"^step {int(first) + 2}:")
        self.browser.press("Escape")
        self.assertEqual(self.browser.run(f"{PLOT}.chart.place.range"), [1, 24])

    def test_charts_smooth_and_have_a_logarithmic_axis(self):
        self.open("comparison")
        values = "Array.from({0}.chart.valuesOf({0}.chart.curves[0]))".format(PLOT)
        plain = self.browser.run(values)
        self.browser.run("(slider => { slider.value = 10; slider.dispatchEvent(new Event('input')); })(document.querySelector('[type=range]'))")
        smooth = self.browser.run(values)
        self.assertEqual(smooth[0], plain[0])
        keep, total, weight = 0.9, 0, 0  # an average over 10 points
        for one in plain:
            total, weight = keep * total + 0.1 * one, keep * weight + 0.1
        self.assertAlmostEqual(smooth[-1], total / weight, places=5)
        before = self.browser.run(f"{PLOT}.chart.place.y(1)")
        self.browser.run("document.querySelector('.chart button').click()")
        self.browser.frames()
        self.assertNotEqual(self.browser.run(f"{PLOT}.chart.place.y(1)"), before)
        self.assertEqual(self.browser.run("document.querySelector('.chart button').ariaPressed"), "true")

    def test_charts_of_long_runs_draw_columns_with_all_extremes(self):
        self.open("comparison")
        found = self.browser.run("""(() => {
          const chart = document.querySelector(".plot").chart, count = 100000;
          const steps = Uint32Array.from({ length: count }, (_, i) => i), values = Float32Array.from(steps, i => Math.sin(i / 900) + (i * 7919 % 101) / 500);
          values[31415] = 40;
          values.fill(NaN, 60000, 70000);
          const all = new Extremes(values, isValue), wrong = [];
          for (const [begin, end] of [[0, count], [5, 9], [15, 17], [16, 32], [31400, 31416], [60000, 70000], [59999, 70001], [1234, 98765], [7, 7]]) {
            const part = Array.from(values.subarray(begin, end)).filter(isValue), [low, high] = all.of(begin, end);
            if (low !== Math.min(...part) || high !== Math.max(...part)) wrong.push([begin, end]);
          }
          const rectangles = [], fill = CanvasRenderingContext2D.prototype.fillRect;
          CanvasRenderingContext2D.prototype.fillRect = function(x, y, width, height) {
            if (this.canvas === chart.canvas) rectangles.push([x, y, width, height]);
            fill.call(this, x, y, width, height);
          };
          chart.view.range = null;
          chart.set([{ name: "long", steps, values, colour: 0 }]);
          chart.draw();
          CanvasRenderingContext2D.prototype.fillRect = fill;
          const { x, y, left, right } = chart.place, spike = rectangles.find(one => Math.abs(one[0] - x(31415)) <= 1 && Math.abs(one[1] - y(40)) < 1);
          const gap = rectangles.filter(one => one[0] > x(60000) + 1 && one[0] < x(70000) - 1);
          return { wrong, rectangles: rectangles.length, width: right - left, hasSpike: spike !== undefined, inGap: gap.length };
        })()""")
        self.assertEqual(found["wrong"], [])
        self.assertTrue(found["hasSpike"])
        self.assertEqual(found["inGap"], 0)
        self.assertGreater(found["rectangles"], 0.8 * found["width"])
        self.assertLessEqual(found["rectangles"], found["width"] + 3)

    def test_a_comparison_names_runs_shortly_and_has_a_chart_for_each_metric(self):
        self.open("comparison")
        charts = self.browser.run("[...document.querySelectorAll('.chart')].map(one => [one.querySelector('h3').textContent, one.querySelectorAll('.legend button').length])")
        self.assertIn(["train/loss", 2], charts)
        self.assertIn(["val/top1", 2], charts)
        self.assertTrue(all(curves == 2 for name, curves in charts if not name.startswith("time/")), charts)
        self.assertIn(HOSTILE.replace("/", ""), self.text("main"))
        self.assertNotIn(str(self.folder), self.text("main"))
        self.assertRegex(self.text("main"), r"optimizer.lr")

    def test_a_report_has_the_settings_and_no_secret(self):
        self.open("run")
        told = self.text("#settings")
        self.assertIn("optimizer.lr", told)
        self.assertRegex(told, r"env.API_TOKEN\s+\*\*\*")
        self.assertNotIn("hidden-value", self.pages["run"].read_text())
        self.assertIn("precision", self.text("#confusion"))
        self.assertIn("memory of the host", self.text("#ranks"))
        self.assertTrue(self.browser.run("document.getElementById('attempts').hidden"), "there is one attempt")

    def test_a_sweep_shows_its_trials(self):
        self.open("sweep")
        trials = json.loads((self.folder / "sweep/sweep.json").read_text())["trials"]
        best = min((one for one in trials if one["value"] is not None), key=lambda one: one["value"])
        self.assertTrue(self.text("tbody th").startswith(f"trial {best['trial']}"))
        self.assertEqual(self.browser.run("document.querySelectorAll('.axes path').length"), sum(one["value"] is not None for one in trials))
        self.assertEqual(self.text(".state"), "done")
        self.browser.run("document.querySelector('tr[data-trial] a').focus()")
        self.assertEqual(self.browser.run("document.querySelectorAll('path.marked').length"), 1)
        report = self.browser.run("document.querySelector('tr[data-trial] a').href")
        self.assertTrue(Path(report.removeprefix("file://")).is_file(), report)

    def test_a_live_page_goes_on(self):
        process = subprocess.Popen([PROGRAM, "run", str(self.folder / "job.yaml"), "--output-dir", str(self.folder / "live"),
                                    "--set", "sweep=null", "--set", "train.max_steps=1000000", "--set", "log.metrics_port=0"],
                                   stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close()))
        address = next(found[0] for line in process.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
        self.browser.look(1280)
        self.browser.open(address)
        first = self.until("live.get('train/loss')?.steps.at(-1)")
        self.assertGreater(self.until(f"live.get('train/loss').steps.at(-1) > {first} && live.get('train/loss').steps.at(-1)"), first)
        self.until("document.querySelector('#confusion table')?.rows.length")
        self.assertEqual(self.browser.mistakes, [])
        self.assertIn("optimizer.lr", self.text("#settings"))
        self.assertIn("precision", self.text("#confusion"))
        self.assertNotIn("hidden-value", self.browser.run("document.documentElement.innerHTML"))
        process.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    if browser.PROGRAM is None:
        print("skipped: there is no Chromium")
        sys.exit(77)
    unittest.main()
