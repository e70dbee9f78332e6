"""Puts every feature of a job together with everything that is done with jobs: more ranks, shares of the work, resuming,
replaying, searching. Each pair works as it promises, or is refused with the words of `gputrain validate`.

The features come from what the program lists, so that a new optimizer, schedule, adapter or task is tried by itself. A
run of the test takes a part of the pairs that depends on the day; over PARTS days it has taken all.

usage: pairs_test.py GPUTRAIN [--all | --part N] [--only WORD]
  --all     every pair
  --part N  the pairs of one day
  --only    pairs whose feature or property matches the regular expression WORD
"""
import argparse
import concurrent.futures
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from small_kinds import KINDS, WORDS, job, png, write_data  # noqa: E402
from warm_program import Program  # noqa: E402

PARTS = 14
STEPS, SAVED = 6, 3  # of each run; its first checkpoint
TEXTS, LETTERS = "language model", "language model, characters"

# Features that no list of the program has: kind of job, keys that change.
SWITCHES = {
    "plain": (LETTERS, {}),
    "packing": (TEXTS, {"data.text.packing": True}),
    "dropout": (LETTERS, {"model.config.dropout": 0.2}),
    "noise": (LETTERS, {"model.config.neftune_alpha": 5}),
    "micro-batches": (LETTERS, {"train.micro_batch_size": 1}),
    "found micro-batch": (LETTERS, {"train.micro_batch_size": "auto"}),
    "recomputed blocks": (LETTERS, {"train.activation_checkpointing": "block"}),
    "memory of the host": (LETTERS, {"train.activation_checkpointing": "block", "train.offload.activations": True,
                                     "train.offload.optimizer": True}),
    "recomputed norms": (LETTERS, {"train.activation_checkpointing": "selective"}),
    "tied embedding": (LETTERS, {"model.config.tie_embeddings": True}),
    "experts": (TEXTS, {"model.config.n_expert": 4, "model.config.experts_per_token": 2}),
    "frozen": (LETTERS, {"model.freeze": ["*.h.0.ln_1.*"], "model.config.n_layer": 2}),
    "clipping": (LETTERS, {"train.max_grad_norm": 0.1}),
    "ema": (LETTERS, {"train.ema.decay": 0.5}),
    "swa": (LETTERS, {"train.swa.start": "50%"}),
    "groups": (LETTERS, {"optimizer.groups": [{"match": ["*bias"], "lr": "2x", "weight_decay": 0}]}),
    "sample": (LETTERS, {"eval.sample.prompt": "red"}),
    "answers to messages": (TEXTS, {"eval.sample": {"messages": ["red", "old house"], "max_new_tokens": 8},
                                    "data.text.chat_template": "plain"}),
    "bf16": (LETTERS, {"precision": "bf16"}),
    "fp16": (LETTERS, {"precision": "fp16"}),
    "bf16 weights": (LETTERS, {"precision": "bf16", "optimizer": {"type": "adamw", "lr": 0.01, "master": "bf16"}}),
    "layer decay": (LETTERS, {"optimizer.layer_decay": 0.5}),
    "workers": (LETTERS, {"data.num_workers": 2}),
    "early stopping": (LETTERS, {"eval.early_stopping": {"patience": 3}, "eval.interval": 3}),
    "sent in bf16": (LETTERS, {"parallel.compress": "bf16"}),
}
ADAPTERS = {
    "dora": {"dora": True},
    "pissa": {"init": "pissa", "groups": [{"match": ["q_proj"], "rank": 3}]},
}
# What entries of the lists cannot do without.
NEEDS = {
    "lr_scheduler exponential": {"lr_scheduler.gamma": 0.9},
    "lr_scheduler multistep": {"lr_scheduler.milestones": [2, 4]},
    "lr_scheduler cosine_restarts": {"lr_scheduler.first_cycle": 2},
    "lr_scheduler plateau": {"eval.interval": 2},
    "lr_scheduler inverse_sqrt": {"lr_scheduler.warmup": 2},
}
TASK_KINDS = {"classification": "classifier of images", "language_model": TEXTS, "masked_language_model": "hidden tokens",
              "segmentation": "classifier of pixels", "retrieval": "vectors of texts", "tagging": "tagger",
              "text_classification": "classifier of texts (bert)", "regression": "number for a text",
              "multi_label_classification": "several classes of a text", "reward": "reward model",
              "dpo": "language model, DPO", "simpo": "language model, DPO", "orpo": "language model, DPO",
              "kto": "answers", "similarity": "similar texts"}
RANKS = {"two ranks": {}, "optimizer in shards": {"parallel.shard": "optimizer"},
         "gradients in shards": {"parallel.shard": "gradients"}, "parameters in shards": {"parallel.shard": "parameters"},
         "layers shared": {"parallel.tensor": 2}, "stages": {"parallel.pipeline": 2, "train.micro_batch_size": 2},
         "texts shared": {"parallel.context": 2}}
# Features with which ranks compute other numbers than one, and why.
OTHER_NUMBERS = {
    "dropout": "each rank draws its own",
    "noise": "each rank draws its own",
    "experts": "each rank balances the experts of its own texts",
    "sent in bf16": "rounds the gradients of several ranks",
    "bf16": "sums in another order",
    "fp16": "sums in another order",
    "bf16 weights": "sums in another order",
    "optimizer adamw8bit": "rounds averages by blocks of a rank's own",
}


class Wrong(AssertionError):
    pass


class Senseless(Exception):
    """There is nothing to try in this pair."""


def keys(settings):
    """Keys with dots, as a tree."""
    tree = {}
    for key, value in settings.items():
        *path, last = key.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = value
    return tree


def merged(base, more):
    both = dict(base)
    for key, value in more.items():
        both[key] = merged(both[key], value) if isinstance(value, dict) and isinstance(both.get(key), dict) else value
    return both


class Pairs:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.references, self.lock = {}, threading.Lock()

    def run(self, *words, ranks=1):
        launched = ["launch", "--nproc-per-node", str(ranks), "--max-restarts", "0"] if ranks > 1 else []
        return self.program.run(*launched, *words, timeout=600)

    def listed(self, kind):
        return re.findall(r"^(\w+)  ", self.run("list", kind).stdout, re.M)

    def features(self):
        found = dict(SWITCHES)
        found.update({kind: (kind, {}) for kind in KINDS if kind != LETTERS})
        for task in self.listed("task"):
            kind = TASK_KINDS.get(task)
            if kind is None:
                raise Wrong(f"task {task} has no small job: add it to TASK_KINDS")
            if (kind in KINDS and KINDS[kind][1] == task) or kind == TEXTS or (kind in KINDS and KINDS[kind][1] is None):
                continue  # stands among the kinds
            found[f"task {task}"] = (kind, {"task.type": task})
        for optimizer in self.listed("optimizer"):
            found[f"optimizer {optimizer}"] = (LETTERS, {"optimizer": {"type": optimizer, "lr": 0.01}})
        for schedule in self.listed("lr_scheduler"):
            found[f"lr_scheduler {schedule}"] = (LETTERS, {"lr_scheduler.type": schedule})
        beside = {"type": "gpt", "pretrained": str(self.folder / "published")}
        for adapter in self.listed("adapter"):
            found[f"adapter {adapter}"] = (TEXTS, {"model": {**beside, "adapter": {"type": adapter, "rank": 2}}})
        for name, options in ADAPTERS.items():
            found[name] = (TEXTS, {"model": {**beside, "adapter": {"type": "lora", "rank": 2, **options}}})
        for packing in self.listed("packing"):
            found[f"quantize {packing}"] = (TEXTS, {"model": {**beside, "adapter": {"type": "lora", "rank": 2},
                                                              "quantize": {"type": packing}}})
        return {name: (kind, {**settings, **NEEDS.get(name, {})}) for name, (kind, settings) in found.items()}

    def job_of(self, feature, more=()):
        kind, settings = self.all_features[feature]
        if kind in KINDS:
            base = job(self.folder, kind)
        else:
            records = {"answers": "answers.jsonl", "similar texts": "similar.jsonl"}[kind]
            base = job(self.folder, TEXTS if kind == "answers" else "vectors of texts")
            base["data"]["train"] = {"format": "jsonl", "path": str(self.folder / records)}
            base.pop("task", None)
        if base["model"]["type"] == "bert":
            base = merged(base, keys({"model.config.dropout": 0}))
        if base["data"]["train"]["format"] in ("imagefolder", "segmentation"):  # batch norm sees a micro-batch
            base = merged(base, keys({"train.micro_batch_size": 2}))
        base = merged(base, keys({"precision": "fp64", "train.max_steps": STEPS, "checkpoint.interval": SAVED,
                                  "checkpoint.keep_last": 9, "log.interval": 1, "eval.interval": STEPS, "seed": 3}))
        replaced = {key: value for key, value in settings.items() if "." not in key}
        return merged({**base, **replaced}, keys({**{k: v for k, v in settings.items() if "." in k}, **dict(more)}))

    def write_job(self, feature, name, more=()):
        path = self.folder / f"{self.slug(feature)}-{name}.json"
        path.write_text(json.dumps(self.job_of(feature, more), indent=1))
        return path

    @staticmethod
    def slug(name):
        return re.sub(r"\W+", "_", name)

    def refusal(self, file):
        """The words with which both `validate` and a run of two ranks refuse the job; empty: neither does."""
        checked = json.loads(self.run("validate", file, "--json").stdout)
        reasons = [one["what"] for one in checked.get("problems", [])]
        if not reasons:
            return ""
        done = self.run("run", file, "--output-dir", self.folder / f"refused-{file.stem}", ranks=2)
        said = " ".join(done.stderr.split())
        for reason in reasons:
            if done.returncode != 2 or " ".join(reason.split()) not in said:
                raise Wrong(f"validate refuses: {reason}\nthe run ({done.returncode}): {done.stderr}")
        return "; ".join(reasons)

    def train(self, file, name, ranks=1):
        run = self.folder / f"run-{file.stem}-{name}"
        done = self.run("run", file, "--output-dir", run, ranks=ranks)
        if done.returncode != 0:
            raise Wrong(f"{file.stem}: exit code {done.returncode}\n{done.stderr}")
        return run

    def reference(self, feature):
        """The run folder of the feature alone; made once."""
        with self.lock:
            mine = self.references.setdefault(feature, threading.Lock())
        with mine:
            run = self.folder / f"run-{self.slug(feature)}-alone-whole"
            if not (run / "summary.json").exists():
                self.train(self.write_job(feature, "alone"), "whole")
            return run

    @staticmethod
    def curve(run, kind="train"):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        timeless = re.compile(r"time|second|throughput|per_s|memory|mfu|tokens|stall|gpu|cpu|peak")
        return {line["step"]: {name: value for name, value in line.items()
                               if isinstance(value, float) and "/" in name and not timeless.search(name)}
                for line in lines if line["kind"] == kind}

    def expect_alike(self, feature, one, other, what):
        """Equal up to the order of sums."""
        loose = OTHER_NUMBERS.get(feature)
        for step, values in self.curve(one).items():
            for name in ("train/loss", "train/grad_norm"):
                a, b = values.get(name), self.curve(other).get(step, {}).get(name)
                if a is None or b is None:
                    raise Wrong(f"{what}: {name} of step {step} is {b}, was {a}")
                if not math.isclose(a, b, rel_tol=0.2 if loose else 1e-8, abs_tol=1e-10):
                    raise Wrong(f"{what}: {name} of step {step} is {b}, but {a} alone")

    def expect_same_bits(self, one, other, what):
        if self.curve(one) != self.curve(other):
            raise Wrong(f"{what}: other metrics: {self.curve(one)}\n{self.curve(other)}")
        self.expect_same_checkpoint(one, other, what)

    def expect_same_checkpoint(self, one, other, what):
        a, b = ({file.name: file.read_bytes() for of in (f"step-{STEPS:08}/", "frozen-")
                 for file in (run / "ckpt").glob(of + "*.safetensors")} for run in (one, other))
        if not a or a != b:
            raise Wrong(f"{what}: other tensors in {sorted(name for name in {*a, *b} if a.get(name) != b.get(name))}")

    # Properties: each raises Wrong where a promise is broken, and returns why the pair is refused, or nothing.

    def on_ranks(self, feature, property):
        more = RANKS[property]
        file, alone = self.write_job(feature, self.slug(property), more.items()), self.reference(feature)
        if refused := self.refusal(file):
            return refused
        run = self.train(file, "whole", ranks=2)
        self.expect_alike(feature, alone, run, property)

    def truncated(self, feature, name):
        """A copy of the run as a kill after the first checkpoint leaves it."""
        copy = self.folder / f"run-{self.slug(feature)}-{name}"
        shutil.copytree(self.reference(feature), copy, symlinks=True)
        shutil.rmtree(copy / f"ckpt/step-{STEPS:08}")
        return copy

    def resumed(self, feature, _):
        copy = self.truncated(feature, "resumed")
        done = self.run("run", self.folder / f"{self.slug(feature)}-alone.json", "--output-dir", copy)
        if done.returncode != 0 or not re.search(r"^resume +step \d ", done.stderr + done.stdout, re.M):
            raise Wrong(f"resumed: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        self.expect_same_bits(self.reference(feature), copy, "resumed")

    def moved(self, feature, _):
        """Goes on from the mirror after the machine was lost."""
        mirror = self.folder / f"mirror-{self.slug(feature)}"
        file = self.write_job(feature, "mirrored", {"checkpoint.mirror": str(mirror)}.items())
        run = self.train(file, "moved")
        shutil.rmtree(run)
        newest = list(mirror.rglob(f"step-{STEPS:08}"))
        if len(newest) != 1:
            raise Wrong(f"the mirror has {newest} of step {STEPS}")
        shutil.rmtree(newest[0])
        done = self.run("run", file, "--output-dir", run)
        if done.returncode != 0 or not re.search(r"^resume +step \d from .*mirror", done.stderr + done.stdout, re.M):
            raise Wrong(f"moved: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        self.expect_same_checkpoint(self.reference(feature), run, "moved to another machine")

    def resumed_on_ranks(self, feature, _):
        file = self.write_job(feature, "shards", {"parallel.shard": "optimizer"}.items())
        self.reference(feature)
        if refused := self.refusal(file):
            return refused
        copy = self.truncated(feature, "resumed_on_ranks")
        done = self.run("run", file, "--output-dir", copy, "--accept", ranks=2)
        if done.returncode != 0:
            raise Wrong(f"resumed on two ranks: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        self.expect_alike(feature, self.reference(feature), copy, "resumed on two ranks")

    def replayed(self, feature, _):
        done = self.run("replay", self.reference(feature), "--step", STEPS)
        if done.returncode != 0:
            raise Wrong(f"replay: exit code {done.returncode}\n{done.stdout}{done.stderr}")

    def replayed_in_shards(self, feature, _):
        file = self.write_job(feature, "replayed", {"parallel.shard": "gradients"}.items())
        self.reference(feature)
        if refused := self.refusal(file):
            return refused
        run = self.train(file, "shards", ranks=2)
        done = self.run("replay", run, "--step", STEPS, ranks=2)
        if done.returncode != 0:
            raise Wrong(f"replay: exit code {done.returncode}\n{done.stdout}{done.stderr}")

    def audited(self, feature, _):
        done = self.run("data", "audit", self.reference(feature))
        if done.returncode != 0:
            raise Wrong(f"audit: exit code {done.returncode}\n{done.stdout}{done.stderr}")

    def swept(self, feature, _):
        rate = self.job_of(feature)["optimizer"]["lr"]
        file = self.write_job(feature, "sweep", {"sweep": {
            "method": "grid", "metric": "train/loss", "parameters": [{"key": "optimizer.lr", "values": [str(rate), "0.001"]}]}}.items())
        if self.job_of(feature).get("data", {}).get("val"):
            tree = json.loads(file.read_text())
            tree["sweep"]["metric"] = "val/loss"
            file.write_text(json.dumps(tree))
        sweep = self.folder / f"sweep-{self.slug(feature)}"
        done = self.run("sweep", file, "--output-dir", sweep)
        if done.returncode != 0:
            raise Wrong(f"sweep: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        self.expect_same_bits(self.reference(feature), sweep / "trial-001", "the sweep's trial with the same settings")

    def evaluated(self, feature, _):
        run = self.reference(feature)
        recorded = self.curve(run, "eval").get(STEPS)
        if not recorded:
            raise Senseless()
        done = self.run("eval", self.folder / f"{self.slug(feature)}-alone.json", "--output-dir", run, "--weights", run, "--json")
        if done.returncode != 0:
            raise Wrong(f"eval: exit code {done.returncode}\n{done.stderr}")
        now = json.loads(done.stdout)
        for name, value in recorded.items():
            if name in now and not math.isclose(now[name], value, rel_tol=1e-9, abs_tol=1e-12):
                raise Wrong(f"eval: {name} is {now[name]}, the run recorded {value}")
        if not any(name in now for name in recorded):
            raise Wrong(f"eval has nothing of what the run recorded: {now} {recorded}")

    def properties(self):
        return {**{name: self.on_ranks for name in RANKS}, "resumed": self.resumed, "moved": self.moved,
                "resumed on ranks": self.resumed_on_ranks,
                "replayed": self.replayed, "replayed in shards": self.replayed_in_shards, "audited": self.audited,
                "swept": self.swept, "evaluated": self.evaluated}

    def prepare(self):
        write_data(self.folder)
        for i, image in enumerate(sorted(self.folder.glob("images/*/*.png"))):  # of plain ones gradients of batch norm are huge
            image.write_bytes(png(random.Random(i).randbytes(16 * 16 * 3), 16, 3))
        texts = [f"{one} house {two}" for one in WORDS for two in WORDS[:4]]
        (self.folder / "answers.jsonl").write_text("".join(
            json.dumps({"prompt": text, "completion": " good" if i % 2 else " bad", "label": bool(i % 2)}) + "\n"
            for i, text in enumerate(texts)))
        (self.folder / "similar.jsonl").write_text("".join(
            json.dumps({"sentence1": text, "sentence2": texts[i // 2], "score": i % 5 / 5}) + "\n" for i, text in enumerate(texts)))
        self.all_features = self.features()
        base = self.train(self.write_job(TEXTS, "base"), "base")
        done = self.run("export", base, self.folder / "published", "--format", "hf")
        if done.returncode != 0:
            raise Wrong(done.stderr)

    def outcome(self, feature, property):
        """A letter for the table, and what is wrong."""
        try:
            refused = self.properties()[property](feature, property)
            return ("r" if refused else "x"), refused or ""
        except Senseless:
            return "-", ""
        except Wrong as wrong:
            return "W", f"{feature} x {property}: {wrong}"


def table_of(outcomes, features, properties):
    lines = [f"{'':32}" + " ".join(chr(ord('a') + i) for i in range(len(properties)))]
    lines += [f"{feature:32}" + " ".join(outcomes.get((feature, property), (".",))[0] for property in properties) for feature in features]
    lines += [f"{chr(ord('a') + i)}  {name}" for i, name in enumerate(properties)]
    return "\n".join(lines + ["x works, r refused alike by validate and run, - senseless, . not tried today, W wrong"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--part", type=int, default=int(time.time() // 86400) % PARTS)
    parser.add_argument("--only", default="", help="a regular expression")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gputrain_pairs_") as temporary:
        pairs = Pairs(Program(given.program), Path(temporary))
        pairs.prepare()
        features, properties = list(pairs.all_features), list(pairs.properties())
        every = [(feature, property) for feature in features for property in properties]
        taken = [pair for i, pair in enumerate(every)
                 if (given.all or given.only or (features.index(pair[0]) + 3 * properties.index(pair[1])) % PARTS == given.part)
                 and any(re.search(given.only, name) for name in pair)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            outcomes = dict(zip(taken, pool.map(lambda pair: pairs.outcome(*pair), taken)))
    wrong = [told for letter, told in outcomes.values() if letter == "W"]
    print("\n\n".join(wrong))
    print(table_of(outcomes, features, properties))
    counts = {letter: sum(outcome[0] == letter for outcome in outcomes.values()) for letter in "xr-W"}
    print(f"{len(taken)} of {len(every)} pairs: {counts['x']} work, {counts['r']} refused, {counts['-']} senseless, {counts['W']} wrong")
    sys.exit(bool(wrong) or not counts["x"])


if __name__ == "__main__":
    main()
