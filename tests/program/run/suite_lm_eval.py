"""Compares `gputrain eval --suite` with lm-evaluation-harness itself; run by hand, it needs the package lm_eval.

usage: suite_lm_eval.py GPUTRAIN DIR

DIR is what suite_reference.py has written. Each task of a suite becomes a task of the harness on the same lines.
"""
import json
import subprocess
import sys
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

KINDS = {
    "choices": dict(output_type="multiple_choice", doc_to_text="context", doc_to_target="answer",
                    doc_to_choice="choices", metrics=("acc", "acc_norm", "acc_bytes")),
    "text": dict(output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="text",
                 metrics=("word_perplexity", "byte_perplexity", "bits_per_byte")),
    "prompt": dict(output_type="generate_until", doc_to_text="prompt", doc_to_target="answer",
                   metrics=("exact_match", )),
}


def task_config(name, lines, folder):
    file = folder / f"lm_eval_{name}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    kind = dict(next(value for key, value in KINDS.items() if key in lines[0]))
    kind["metric_list"] = [{"metric": metric} for metric in kind.pop("metrics")]
    if "prompt" in lines[0]:
        kind["generation_kwargs"] = {"until": lines[0].get("stop", ["\n\n"]), "do_sample": False,
                                     "max_gen_toks": lines[0]["max_new_tokens"]}
    return dict(kind, task=name, dataset_path="json", dataset_kwargs={"data_files": {"test": str(file)}},
                test_split="test", target_delimiter=lines[0].get("delimiter", " "))


def likelihoods(sample):
    return [float(response[0][0]) if isinstance(response[0], (tuple, list)) else float(response[0])
            for response in sample["resps"]]


def compare(program, folder):
    lines = [json.loads(line) for line in (folder / "suite.jsonl").read_text().splitlines()]
    samples = folder / "samples.jsonl"
    ours = json.loads(subprocess.run(
        [program, "eval", folder, "--suite", folder / "suite.jsonl", "--json", "--samples", samples],
        check=True, capture_output=True).stdout)
    ours_by_line = [json.loads(line) for line in samples.read_text().splitlines()]
    names = sorted({line["task"] for line in lines})
    configs = [task_config(name, [line for line in lines if line["task"] == name], folder) for name in names]
    model = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=1)
    theirs = simple_evaluate(model=model, tasks=configs, task_manager=TaskManager(include_defaults=False),
                             log_samples=True, bootstrap_iters=1000)
    worst = {"log-likelihood": 0.0, "metric": 0.0, "stderr": 0.0}
    for name in names:
        found = sorted(theirs["samples"][name], key=lambda sample: sample["doc_id"])
        mine = [line for line in ours_by_line if line["task"] == name]
        assert len(found) == len(mine)
        for sample, line in zip(found, mine):
            if "written" in line:
                assert sample["filtered_resps"][0] == line["written"], (sample["filtered_resps"], line)
                continue
            expected = likelihoods(sample)
            got = line.get("loglikelihoods") or [line["loglikelihood"]]
            assert len(expected) == len(got), (expected, got)
            worst["log-likelihood"] = max([worst["log-likelihood"]] + [abs(a - b) for a, b in zip(expected, got)])
        for metric, value in ours["tasks"][name].items():
            result = theirs["results"][name]
            expected = result[f"{metric},none"]
            print(f"{folder.name:6} {name:10} {metric:16} {value['value']:.10g} {expected:.10g}", value.get("stderr"),
                  result[f"{metric}_stderr,none"])
            worst["metric"] = max(worst["metric"], abs(value["value"] / expected - 1) if expected else value["value"])
            if "stderr" in value:
                worst["stderr"] = max(worst["stderr"], abs(value["stderr"] - result[f"{metric}_stderr,none"]))
    print(folder.name, "largest differences:", worst)
    assert worst["log-likelihood"] < 1e-4 and worst["metric"] < 1e-6 and worst["stderr"] < 1e-9


for each in sorted(Path(sys.argv[2]).iterdir()):
    compare(sys.argv[1], each)
