"""Compares fine-tuning of a small BERT, which classifies texts of mixed lengths, with transformers' Trainer on a CPU:
samples per second and peak memory. Both start from the same folder of transformers and read the same texts. Programs
run in turns; ratios are medians over the rounds.

usage: encoder_speed.py --binary build/release/bin/gputrain [--rounds N] [--steps N] [--lengths log|even]
                        [--dropout P] [--micro-batch N] [--only NAME...]

The Trainer has its default settings and DataCollatorWithPadding; "by length" is its train_sampling_strategy
group_by_length, which changes which texts share a step. gputrain keeps the order of its steps.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cpu_vs_pytorch import flow
from measure import Process, alternate

SIZES = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
BATCH, SHORTEST, LONGEST, TEXTS, LR = 32, 8, 128, 4096, 1e-4


def write_texts(path: Path, lengths: str):
    """Texts of SHORTEST to LONGEST tokens, those around them included; the class is told by one word in eight."""
    draw = random.Random(5)
    with path.open("w") as file:
        file.write("text\tlabel\n")
        for _ in range(TEXTS):
            label = draw.randrange(2)
            low, high = math.log(SHORTEST), math.log(LONGEST + 1)
            count = int(math.exp(draw.uniform(low, high))) if lengths == "log" else draw.randint(SHORTEST, LONGEST)
            words = (f"c{label}" if draw.random() < 0.125 else f"w{int(4000 ** draw.random())}"
                     for _ in range(count - 2))
            file.write(" ".join(words) + f"\t{label}\n")


def write_base(folder: str, texts: str, dropout: float):
    """In a process of its own: the peak memory of a child begins with what its parent has."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = sorted({word for line in Path(texts).read_text().splitlines()[1:] for word in line.split("\t")[0].split()})
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]"] + words)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
                            unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(1)
    BertForSequenceClassification(BertConfig(
        **SIZES, vocab_size=len(vocabulary), max_position_embeddings=LONGEST, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout)).save_pretrained(folder)


def job(base: Path, texts: Path, steps: int, micro_batch: int) -> str:
    train = {"max_steps": steps, "global_batch_size": BATCH, "max_grad_norm": 1.0}
    if micro_batch:
        train["micro_batch_size"] = micro_batch
    return "\n".join([
        "schema: 1",
        "name: encoder",
        "device: cpu",
        f"model: {flow({'type': 'bert', 'pretrained': str(base), 'config': {'head': 'classifier'}})}",
        f"data: {flow({'train': {'path': str(texts), 'format': 'tsv'}, 'text': {'tokenizer': 'pretrained'}})}",
        f"train: {flow(train)}",
        f"optimizer: {flow({'type': 'adamw', 'lr': LR, 'weight_decay': 0})}",
        "lr_scheduler: {type: linear}",
        "checkpoint: {interval: null}",
        "log: {interval: 5}",
    ])


def train_with_trainer(base: str, texts: str, steps: int, sampling: str, output: str):
    """Prints when each step ended, and the loss of all."""
    import torch
    from transformers import (AutoTokenizer, BertForSequenceClassification, DataCollatorWithPadding, Trainer,
                              TrainerCallback, TrainingArguments)

    class Clock(TrainerCallback):
        def __init__(self):
            self.ends = []

        def on_step_end(self, *_, **__):
            self.ends.append(time.time())

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = [line.split("\t") for line in Path(texts).read_text().splitlines()[1:]]
    samples = [dict(tokenizer(text), labels=int(label)) for text, label in rows]
    clock = Clock()
    trainer = Trainer(
        model=BertForSequenceClassification.from_pretrained(base), train_dataset=samples, processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer), callbacks=[clock],
        args=TrainingArguments(output_dir=output, max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=LR,
                               train_sampling_strategy=sampling, use_cpu=True, save_strategy="no", report_to=[],
                               disable_tqdm=True))
    result = trainer.train()
    print(json.dumps({"ends": clock.ends, "loss": result.training_loss}), flush=True)


class Run:
    def __init__(self, points: list[tuple[int, float]], peak: int, loss: float):
        begin, end = points[len(points) // 5], points[-1]  # the first fifth is warm-up
        self.rate = (end[0] - begin[0]) * BATCH / (end[1] - begin[1])
        self.peak, self.loss = peak, loss

    def __str__(self) -> str:
        return f"{self.rate:,.1f} samples/s, peak {self.peak / 2**20:,.0f} MiB, mean loss {self.loss:.4f}"


def main():
    if sys.argv[1:2] == ["--trainer"]:
        base, texts, steps, sampling, output = sys.argv[2:]
        return train_with_trainer(base, texts, int(steps), sampling, output)
    if sys.argv[1:2] == ["--base"]:
        return write_base(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lengths", choices=["log", "even"], default="log", help="of texts: even logarithms, or even")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--micro-batch", type=int, default=0, help="of gputrain; 0: the whole batch")
    parser.add_argument("--only", nargs="+", help="contenders to run: gputrain, Trainer, 'Trainer by length'")
    arguments = parser.parse_args()
    environment = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory(prefix="gputrain-bench-") as folder:
        root = Path(folder)
        base, texts = root / "base", root / "texts.tsv"
        write_texts(texts, arguments.lengths)
        subprocess.run([sys.executable, __file__, "--base", str(base), str(texts), str(arguments.dropout)], check=True,
                       stderr=subprocess.DEVNULL)

        def ours(turn: int) -> Run:
            place = root / f"gputrain-{turn}"
            place.mkdir()
            (place / "job.yaml").write_text(job(base, texts, arguments.steps, arguments.micro_batch))
            process = Process([arguments.binary, "run", str(place / "job.yaml"), "--output-dir", str(place / "run")],
                              environment, place / "log")
            for _ in process.lines():
                pass
            peak = process.finish()
            records = [json.loads(line) for line in (place / "run/metrics.jsonl").read_text().splitlines()]
            steps = [record for record in records if record["kind"] == "train"]
            return Run([(record["step"], record["time"]) for record in steps], peak,
                       statistics.mean(record["train/loss"] for record in steps))

        def theirs(sampling: str):
            def run(turn: int) -> Run:
                place = root / f"{sampling}-{turn}"
                place.mkdir()
                process = Process([sys.executable, __file__, "--trainer", str(base), str(texts), str(arguments.steps),
                                   sampling, str(place / "out")], environment, place / "log")
                found = [json.loads(line) for line in process.lines() if line.startswith('{"ends"')][0]
                return Run(list(enumerate(found["ends"], 1)), process.finish(), found["loss"])
            return run

        contenders = {"gputrain": ours, "Trainer": theirs("random"), "Trainer by length": theirs("group_by_length")}
        chosen = {name: run for name, run in contenders.items() if not arguments.only or name in arguments.only}
        found = alternate(chosen, arguments.rounds, lambda line: print(line, flush=True))
    for name in chosen:
        if name != "gputrain" and "gputrain" in chosen:
            pairs = list(zip(found["gputrain"], found[name]))
            print(f"gputrain / {name}: {statistics.median(a.rate / b.rate for a, b in pairs):.2f} of the samples/s, "
                  f"{statistics.median(a.peak / b.peak for a, b in pairs):.2f} of the peak memory")
    print(f"load averages {os.getloadavg()}")


if __name__ == "__main__":
    main()
