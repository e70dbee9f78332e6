"""Jobs of other tools as `gputrain import` writes them: every key is moved or told, the job is right, and it trains as
the other tool does.

usage: import_test.py GPUTRAIN
"""
import ast
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

HUB = tempfile.TemporaryDirectory(prefix="gputrain-hub-")
os.environ |= {"HF_HUB_CACHE": HUB.name, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from warm_program import Program  # noqa: E402

PROGRAM = Program(sys.argv.pop(1))
sys.modules["wandb"] = None  # is installed for its protocol buffers alone
try:
    import torch
    import yaml
    from PIL import Image
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import BertConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainingArguments
    from foreign_jobs import ARGUMENTS, AXOLOTL, LLAMA_FACTORY, SCRIPTS, TIMM, TRL
except ImportError as missing:
    if os.environ.get("CI"):
        raise
    print(f"skipped: {missing}; scripts/requirements-test.txt lists what is needed")
    sys.exit(77)

JOBS = ({f"axolotl {name}": ("config.yml", yaml.safe_dump(job)) for name, job in AXOLOTL.items()}
        | {f"llamafactory {name}": ("config.yaml", yaml.safe_dump(job)) for name, job in LLAMA_FACTORY.items()}
        | {f"trl {name}": job for name, job in TRL.items()} | {f"timm {name}": job for name, job in TIMM.items()})

ALPACA = {"instruction": "w1 w2", "input": "w3", "output": "w4 w5"}
CHAT = {"conversations": [{"from": "human", "value": "w1 w2"}, {"from": "gpt", "value": "w3"}]}
PAIR = {"conversation": [{"role": "user", "content": "w1"}], "chosen": {"role": "assistant", "content": "w2"},
        "rejected": {"role": "assistant", "content": "w3 w4"}}
ANSWERS = {"chosen": [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w2"}],
           "rejected": [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w3"}]}
# What the data of a job looks like, by words in the job's name; the first that fits.
RECORDS = {"dpo_lora_8b": PAIR, "reward": {"question": "w1", "chosen": "w2", "rejected": "w3"}, "orpo": ANSWERS,
           "dpo": ANSWERS, "kto": {"prompt": "w1 w2", "completion": "w3", "label": True}, "pretrain": {"text": "w1 w2 w3"},
           "sft_yaml": {"text": "w1 w2 w3"}, "8b_liger": CHAT, "gemma3": CHAT, "trl": CHAT, "": ALPACA}
TEMPLATE = ("{% for message in messages %}{{ message.role + ' ' + message.content + ' ' }}"
            "{% if message.role == 'assistant' %}{{ '<end> ' }}{% endif %}{% endfor %}")


class Import(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="gputrain-import-")
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)

    def moved(self, file, text, *options, rc=0):
        path = self.folder / file
        path.write_text(text)
        job = self.folder / "job.yaml"
        job.unlink(missing_ok=True)
        run = PROGRAM.run("import", path, "--output", job, "--json", *options)
        self.assertEqual(run.returncode, rc, run.stdout + run.stderr)
        return json.loads(run.stdout) if rc == 0 else run.stderr

    def test_every_key_of_thirty_jobs_is_moved_or_told(self):
        for name, (file, text) in JOBS.items():
            with self.subTest(name):
                found = self.moved(file, text)
                self.assertEqual(found["unknown"], [])
                run = PROGRAM.run("validate", self.folder / "job.yaml")
                self.assertEqual(run.returncode, 0, run.stderr + (self.folder / "job.yaml").read_text())

    def job(self):
        return yaml.safe_load((self.folder / "job.yaml").read_text())

    def moved_arguments(self, **more):
        arguments = {key: value for key, value in (ARGUMENTS | more).items() if value is not None}
        return self.moved("arguments.yaml", yaml.safe_dump(arguments))

    def line(self, dotted):
        value = self.job()
        for key in dotted.split("."):
            if key not in value:
                return "no line"
            value = value[key]
        return value

    def told(self, found):
        return {one["key"].split(": ")[0]: one["why"] for one in found["told"]}

    def axolotl(self, datasets, **more):
        return self.moved("a.yml", yaml.safe_dump({"base_model": "x", "learning_rate": 1e-4, "datasets": datasets} | more))

    def test_all_data_sets_that_can_be_read_together_are(self):
        chat, alpaca = {"type": "chat_template"}, {"type": "alpaca"}
        text = {"type": "completion"}
        for datasets, path, loss_on in [
                ([{"path": "a.jsonl"} | chat, {"path": "b.json"} | chat], "{a.jsonl,b.json}", "assistant"),
                ([{"path": "a.jsonl"} | text, {"path": "b.jsonl"} | text], "{a.jsonl,b.jsonl}", "all"),
                ([{"path": "a.jsonl"} | text, {"path": "b.jsonl"} | chat], "{a.jsonl,b.jsonl}", "assistant"),
                ([{"path": "json", "data_files": ["a.jsonl", "b.jsonl"]} | alpaca], "{a.jsonl,b.jsonl}", "assistant"),
                ([{"path": "u/one"} | alpaca, {"path": "u/two", "split": "test"} | alpaca],
                 "{data/one/default/train/*.parquet,data/two/default/test/*.parquet}", "assistant")]:
            with self.subTest(path):
                found = self.axolotl(datasets, test_datasets=[{"path": "v.jsonl"}, {"path": "w.jsonl"}])
                self.assertEqual(self.told(found), {})
                self.assertEqual((self.line("data.train.path"), self.line("data.text.loss_on"), self.line("data.val.path")),
                                 (path, loss_on, "{v.jsonl,w.jsonl}"))
        self.assertEqual((self.folder / "job.yaml").read_text().count("# `hf download u/"), 2)
        info = {"one": {"file_name": "one.json"}, "two": {"file_name": "two.json", "num_samples": 9, "formatting": "sharegpt"}}
        (self.folder / "dataset_info.json").write_text(json.dumps(info))
        found = self.moved("a.yaml", yaml.safe_dump(LLAMA_FACTORY["lora_sft"] | {
            "dataset": "one,two", "eval_dataset": "two,one", "dataset_dir": str(self.folder)}))
        self.assertEqual((self.line("data.train.path"), self.line("data.val.path")),
                         (f"{{{self.folder}/one.json,{self.folder}/two.json}}", f"{{{self.folder}/two.json,{self.folder}/one.json}}"))
        self.assertIn("dataset[1].num_samples", self.told(found))
        found = self.moved("a.yaml", yaml.safe_dump({"model_name_or_path": "x", "datasets": [
            {"path": "a.jsonl", "fraction": 0.5}, {"path": "b.jsonl"}]}), "--from", "trl-sft")
        self.assertEqual((self.line("data.train.path"), list(self.told(found))), ("{a.jsonl,b.jsonl}", ["datasets[0].fraction"]))

    def test_a_data_set_that_is_left_out_is_told_on_the_terminal(self):
        first = {"path": "a.jsonl", "type": "chat_template"}
        (self.folder / "some").mkdir()
        for other, why in [({"path": "b.csv", "type": "chat_template"}, "this is csv where the first is jsonl"),
                           ({"path": "b.jsonl", "type": "alpaca"}, "it needs data.text.chat_template: alpaca, and the first one null"),
                           ({"path": "b.jsonl", "type": "chat_template", "field_messages": "turns"}, "data.text.columns.messages: turns"),
                           ({"path": "a.jsonl", "type": "chat_template"}, "a.jsonl is read once in an epoch"),
                           ({"path": "b,c.jsonl", "type": "chat_template"}, "no comma, brace or bracket"),
                           ({"path": str(self.folder / "some"), "type": "chat_template"}, "must be a file or a pattern"),
                           ({"type": "chat_template"}, "it has no path")]:
            with self.subTest(why):
                found = self.axolotl([first, other, first | {"path": "d.jsonl"}])
                self.assertEqual(list(self.told(found)), ["datasets[1]"])
                self.assertIn(why, self.told(found)["datasets[1]"])
                self.assertEqual(self.line("data.train.path"), "{a.jsonl,d.jsonl}")
                (self.folder / "job.yaml").unlink()
                shown = PROGRAM.run("import", self.folder / "a.yml", "--output", self.folder / "job.yaml").stdout
                self.assertIn("not moved datasets[1]", " ".join(shown.split()))
                self.assertIn(why, " ".join(shown.split()))

    def test_what_changes_what_is_learned_is_told_on_the_terminal(self):
        found = self.axolotl([{"path": "u/one", "type": "chat_template", "split": "train[:20%]", "shards": 4},
                              {"path": "u/two", "type": "pygmalion", "message_field_training": "learn"}],
                             special_tokens={"pad_token": "<p>", "eos_token": "<e>"}, tokens=["<t>"], dataset_shard_num=2)
        told = self.told(found)
        for key in ("split of u/one", "datasets[0].shards", "datasets[1].type", "datasets[1].message_field_training",
                    "special_tokens", "tokens", "dataset_shard_num"):
            self.assertFalse(told[key].startswith("not needed"), key)
        told = self.told(self.axolotl([{"path": "a.jsonl"}], special_tokens={"pad_token": "<p>"}))
        self.assertEqual(told, {"special_tokens": "not needed: padding is never learned"})
        self.moved_arguments()
        (self.folder / "job.yaml").unlink()
        shown = PROGRAM.run("import", self.folder / "arguments.yaml", "--output", self.folder / "job.yaml").stdout
        self.assertIn("guessed model.type: bert", " ".join(shown.split()))

    def test_data_sets_of_several_forms_are_read_together(self):
        model = self.tiny_model()
        for name, record, count in [("a", CHAT, 40), ("b", {"text": "w1 w2 w3"}, 24)]:
            (self.folder / f"{name}.jsonl").write_text((json.dumps(record) + "\n") * count)
        self.axolotl([{"path": str(self.folder / "a.jsonl"), "type": "chat_template"},
                      {"path": str(self.folder / "b.jsonl"), "type": "completion"}])
        run = PROGRAM.run("run", self.folder / "job.yaml", "--dry-run", "--output-dir", self.folder / "run", "--set",
                          "device=cpu", "--set", f"model.pretrained={model}")
        self.assertIn("train 64 texts of 2 files", run.stdout, run.stderr)

    def test_a_key_that_counts_as_moved_changes_the_job(self):
        found = self.moved_arguments()
        self.assertEqual((found["unknown"], found["unchanging"]), ([], []))
        whole = self.job()
        for key in found["moved"]:
            with self.subTest(key):
                self.moved_arguments(**{key: None})
                self.assertNotEqual(self.job(), whole)
        for name in ("axolotl lora_1b", "llamafactory lora_kto", "trl dpo"):
            file, text = JOBS[name]
            found = self.moved(file, text)
            for key in found["unchanging"]:
                self.assertIn(f"{key}:", (self.folder / "job.yaml").read_text())

    def test_arguments_that_the_trainer_writes_are_known(self):
        arguments = TrainingArguments(str(self.folder / "out"), report_to="none", use_cpu=True, eval_strategy="epoch")
        self.assertEqual(self.moved("args.json", arguments.to_json_string())["unknown"], [])
        self.assertEqual(self.line("eval.interval"), "1ep")
        run = PROGRAM.run("validate", self.folder / "job.yaml", "--set", "model.pretrained=gpt2")
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_names_of_other_versions_mean_the_same(self):
        for name, (later, value) in {
                "evaluation_strategy": ("eval_strategy", "steps"), "per_gpu_train_batch_size": ("per_device_train_batch_size", 16),
                "per_gpu_eval_batch_size": ("per_device_eval_batch_size", 16),
                "activation_checkpointing": ("gradient_checkpointing", True), "adafactor": ("optim", True)}.items():
            with self.subTest(name):
                self.moved_arguments(**{later: "adafactor" if later == "optim" else value})
                expected = self.job()
                found = self.moved_arguments(**{later: None, name: value})
                self.assertEqual(self.job(), expected)
                self.assertIn(name, found["moved"])
        self.assertIn("evaluation_strategy", self.moved_arguments(
            eval_strategy=None, evaluation_strategy="steps", eval_steps=50)["moved"])
        self.assertEqual(self.line("eval.interval"), 50)
        for file, text, how in [
                ("a.yml", AXOLOTL["lora_1b"] | {"evals_per_epoch": None, "evaluation_strategy": "steps", "eval_steps": 30}, 30),
                ("a.yaml", LLAMA_FACTORY["lora_kto"] | {"eval_strategy": None, "evaluation_strategy": "epoch"}, "1ep")]:
            self.moved(file, yaml.safe_dump(text))
            self.assertEqual(self.line("eval.interval"), how)
        self.moved("a.sh", TRL["dpo"][1].replace("--eval_strategy", "--evaluation_strategy"))
        self.assertEqual(self.line("eval.interval"), 50)

    def test_what_is_of_evaluations_is_told_where_there_are_none(self):
        job = AXOLOTL["lora_1b"] | {"val_set_size": 0, "metric_for_best_model": "loss", "early_stopping_patience": 3,
                                    "eval_batch_size": 4}
        found = self.moved("a.yml", yaml.safe_dump(job))
        told = {one["key"].split(":")[0]: one["why"] for one in found["told"]}
        for key in ("evals_per_epoch", "metric_for_best_model", "early_stopping_patience", "eval_batch_size"):
            self.assertIn("data.val", told[key])
        self.assertEqual(self.line("eval"), "no line")
        self.moved_arguments(eval_strategy=None, eval_steps=50)
        self.assertEqual(self.line("eval.interval"), 50)

    def test_metrics_are_those_of_the_task(self):
        for metric, ours in {"eval_accuracy": "accuracy", "f1": "f1", "eval_matthews_correlation": "mcc", "loss": "loss"}.items():
            self.moved_arguments(metric_for_best_model=metric)
            self.assertEqual(self.line("checkpoint.metric"), ours)
            self.assertEqual(self.line("model.type"), "gpt" if metric == "loss" else "bert")
        for job, metric in (("lora_kto", "eval_f1"), ("qlora_sft", "eval_accuracy"), ("qlora_sft", "rouge")):
            found = self.moved("a.yaml", yaml.safe_dump(LLAMA_FACTORY[job] | {"metric_for_best_model": metric}))
            self.assertEqual(self.line("checkpoint.metric"), "no line")
            self.assertTrue(any(one["key"].startswith("metric_for_best_model") for one in found["told"]))

    def test_command_lines_of_example_scripts(self):
        for line, expected in SCRIPTS.items():
            with self.subTest(line):
                found = self.moved("run.sh", "#!/bin/bash\nset -e\n" + line.replace(" --", " \\\n  --") + "\n")
                self.assertEqual((found["tool"], found["unknown"]), ("transformers", []))
                for key, value in expected.items():
                    self.assertEqual(self.line(key), value, (self.folder / "job.yaml").read_text())
                run = PROGRAM.run("validate", self.folder / "job.yaml")
                self.assertEqual(run.returncode, 0, run.stderr + (self.folder / "job.yaml").read_text())
        for file, text, why in [
                ("run.sh", "python run_qa.py --model_name_or_path x", "from run_qa.py"),
                ("run.sh", "python run_image_classification.py --train_dir x", "gputrain init FOLDER"),
                ("run.sh", "python run_glue.py args.json", "gputrain import args.json"),
                ("run.sh", "python my_own.py --lr 3", "no command line that is known"),
                ("train.py", "args = TrainingArguments('out', num_train_epochs=3)", "args.to_json_string()")]:
            self.assertIn(why, self.moved(file, text, rc=2))

    def test_a_model_that_is_here_says_its_type(self):
        bert = self.folder / "bert"
        BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=64).save_pretrained(bert)
        csv = self.folder / "train.csv"
        csv.write_text("sentence,label\nw1 w2,a\n")
        found = self.moved_arguments(model_name_or_path=str(bert), train_file=str(csv), validation_file=str(csv),
                                     max_seq_length=64, metric_for_best_model=None)
        self.assertEqual(found["unknown"], [])
        self.assertEqual([self.line(key) for key in ("model.type", "model.config.head", "data.text.columns.text",
                                                     "data.text.max_length", "data.val.path")],
                         ["bert", "classifier", "sentence", 64, str(csv)])
        job = (self.folder / "job.yaml").read_text()
        (self.folder / "gpt.yaml").write_text(job.replace("type: bert", "type: gpt", 1).replace("head: classifier", "dropout: 0"))
        self.assertIn("write `type: bert`", PROGRAM.run("validate", self.folder / "gpt.yaml").stderr)
        (self.folder / "gpt.yaml").write_text(job)
        self.assertEqual(PROGRAM.run("validate", self.folder / "gpt.yaml").returncode, 0)

    def test_what_is_to_be_filled_in_is_named_with_its_line(self):
        self.moved_arguments()
        number = [i for i, text in enumerate((self.folder / "job.yaml").read_text().splitlines(), 1) if "<model>" in text][0]
        for verb in (["validate"], ["run", "--dry-run", "--output-dir", self.folder / "run"]):
            run = PROGRAM.run(verb[0], self.folder / "job.yaml", *verb[1:])
            self.assertEqual(run.returncode, 2)
            self.assertRegex(run.stderr, f"job.yaml:{number}:.*model.pretrained: fill in")
            self.assertNotIn("fetch", run.stderr)

    def test_a_file_with_mistakes_can_be_imported_again(self):
        self.moved_arguments(save_strategy=None)
        self.assertIn("interval: 500  # the Trainer's default", (self.folder / "job.yaml").read_text())
        (self.folder / "job.yaml").unlink()
        (self.folder / "arguments.yaml").write_text(yaml.safe_dump(ARGUMENTS | {"learning_rate": "much"}))
        command = ["import", self.folder / "arguments.yaml", "--output", self.folder / "job.yaml"]
        self.assertIn("optimizer.lr", PROGRAM.run(*command).stderr)
        (self.folder / "arguments.yaml").write_text(yaml.safe_dump(ARGUMENTS))
        self.assertEqual(PROGRAM.run(*command).returncode, 0)

    def test_describe_names_the_tool_and_the_keys(self):
        for name, told in {"adam_beta2": "adam_beta2 of transformers is optimizer.betas here",
                           "bf16_full_eval": "of transformers", "batch_sampler": "of transformers",
                           "train_file": "train_file of transformers is data.train.format and data.train.path here",
                           "cosine_min_lr_ratio": "of axolotl: lr_scheduler.min_lr, which is cosine_min_lr_ratio times learning_rate",
                           "lr_scheduler_kwargs": "of transformers: options beside lr_scheduler.type: of cosine min_lr"}.items():
            text = PROGRAM.run("describe", name).stdout
            self.assertIn(told, " ".join(text.split()), name)
            self.assertNotIn("axolotl" if "transformers" in told else "transformers", text)
            self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.moved("a.yml", yaml.safe_dump(AXOLOTL["lora_1b"] | {"cosine_min_lr_ratio": 0.1}))
        self.assertAlmostEqual(float(self.line("lr_scheduler.min_lr")), 0.1 * AXOLOTL["lora_1b"]["learning_rate"])
        (self.folder / "job.yaml").write_text("model: {type: gpt}\ndata: {train: {format: synthetic}}\ncosine_min_lr_ratio: 0.1\n")
        self.assertIn("= lr_scheduler.min_lr, which is", PROGRAM.run("validate", self.folder / "job.yaml").stderr)

    def test_wrong_files_are_refused_with_the_reason(self):
        for file, text, why in [
                ("a.yaml", "", "no keys"), ("a.sh", "", "no keys"), ("a.yaml", "- 1", "no keys"), ("a.yaml", "a: [", "is not closed"),
                ("a.yaml", "model_name_or_path: x\ndataset_name: y\n", "cannot be told"),
                ("a.yaml", "base_model: x\nrl: grpo\ndatasets: [{path: a.jsonl}]\n", "does not train with grpo"),
                ("a.yaml", "stage: ppo\nmodel_name_or_path: x\ndataset: a\n", "does not train with PPO"),
                ("a.sh", "python train.py -- --model vit_huge_patch14_224 data\n", "no model 'vit_huge_patch14_224'"),
                ("a.sh", "python train.py - -- data --model resnet50 --img-size big\n", "data.image.size"),
                ("a.sh", "trl sft --dataset_name x\n", "model_name_or_path is missing"),
                ("a.yaml", "base_model: x\ndatasets: 3\nlearning_rate: much\nmicro_batch_size: [1]\n", "optimizer.lr")]:
            with self.subTest(text):
                self.assertIn(why, self.moved(file, text, rc=2))
        (self.folder / "job.yaml").write_text("kept")
        run = PROGRAM.run("import", self.folder / "a.yaml", "--output", self.folder / "job.yaml")
        self.assertEqual((run.returncode, (self.folder / "job.yaml").read_text()), (2, "kept"))

    def settings_of(self, line):
        """What `import` writes for a command line of timm, by dotted keys, and what it tells."""
        found = self.moved("a.sh", f"python train.py photos {line}\n")
        flat = {}

        def add(group, under):
            for key, value in group.items():
                add(value, f"{under}{key}.") if isinstance(value, dict) else flat.update({under + key: value})

        add(yaml.safe_load((self.folder / "job.yaml").read_text()), "")
        return flat, {one["key"].split(":")[0] for one in found["told"]}

    def test_timm_reads_images_as_its_weights_ask_for(self):
        half = [0.5, 0.5, 0.5]
        for line, size, resize, mean, training, evaluating in [
                ("--model resnet50", 224, 235, None, "random", "bicubic"),
                ("--model vit_small_patch16_224", 224, 248, half, "random", "bicubic"),
                ("--model mobilenetv3_large_100 --train-interpolation bicubic", 224, 256, None, "bicubic", "bicubic"),
                ("--model tf_efficientnetv2_s", 300, 300, half, "random", "bicubic"),
                ("--model resnet18 --img-size 64 --crop-pct 0.8 --interpolation bilinear --no-aug", 64, 80, None, "bilinear",
                 "bilinear"),
                ("--model vit_tiny_patch16_224 --mean 0.1 0.2 0.3 --std 0.4 0.4 0.4", 224, 248, [0.1, 0.2, 0.3], "random",
                 "bicubic")]:
            with self.subTest(line):
                job, _ = self.settings_of(line)
                self.assertEqual([job["data.image.size"], job["data.image.eval.resize"], job.get("data.image.mean"),
                                  job["data.image.interpolation"], job["data.image.eval.interpolation"]],
                                 [size, resize, mean, training, evaluating])
        snapshot = Path(HUB.name) / "models--timm--resnet50.mine" / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("a" * 40)
        (snapshot / "config.json").write_text(json.dumps({"architecture": "resnet50", "pretrained_cfg": {
            "input_size": [3, 160, 160], "crop_pct": 0.5, "interpolation": "bilinear", "mean": half, "std": half}}))
        job, _ = self.settings_of("--model resnet50.mine --pretrained")
        self.assertEqual([job["data.image.size"], job["data.image.eval.resize"], job["data.image.mean"],
                          job["data.image.eval.interpolation"]], [160, 320, half, "bilinear"])
        (snapshot / "config.json").write_text(json.dumps({"architecture": "resnet50", "pretrained_cfg": {
            "input_size": [3, 160, 160], "interpolation": "bilinear", "mean": half, "std": half}}))
        self.assertIn("crop_pct", self.moved("a.sh", "python train.py photos --model resnet50.mine --pretrained\n", rc=3))

    def test_timm_changes_images_as_its_transforms_do(self):
        augment = "data.image.augment."
        for line, expected, told in [
                ("--model resnet18 --aa rand-m9 --color-jitter 0.3", {"auto_augment": "rand-m9", "color_jitter": None},
                 {"color_jitter"}),
                ("--model resnet18 --aa rand-m9 --force-color-jitter --color-jitter-prob 0.8",
                 {"auto_augment": "rand-m9", "color_jitter": 0.4, "color_jitter_probability": 0.8}, set()),
                ("--model resnet18 --aa augmix-m3-w3 --aug-splits 3 --jsd-loss --aug-repeats 3",
                 {"auto_augment": "augmix-m3-w3", "repeats": 3}, {"aug_splits", "jsd_loss"}),
                ("--model resnet18 --aa original", {"auto_augment": None, "color_jitter": None}, {"aa"}),
                ("--model resnet18 --ratio 0.5 2.0 --grayscale-prob 0.1 --gaussian-blur-prob 0.2",
                 {"random_resized_crop_ratio": [0.5, 2.0], "grayscale": 0.1, "gaussian_blur": 0.2, "color_jitter": 0.4}, set()),
                ("--model resnet18 --mixup 0.2 --mixup-off-epoch 100 --train-crop-mode rkrc",
                 {"mix.mixup": 0.2, "mix.off_epoch": 100}, {"train_crop_mode"})]:
            with self.subTest(line):
                job, reasons = self.settings_of(line)
                self.assertEqual({key: job.get(augment + key) for key in expected}, expected)
                self.assertEqual(reasons, told)

    def tiny_model(self):
        words = ["<end>"] + [f"w{i}" for i in range(63)]
        tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<end>"))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        folder = self.folder / "tiny"
        torch.manual_seed(1)
        LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, hidden_size=32,
                                     intermediate_size=64, max_position_embeddings=8192, vocab_size=len(words),
                                     eos_token_id=0)).save_pretrained(folder)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", bos_token="<end>")
        fast.chat_template = TEMPLATE
        fast.save_pretrained(folder)
        return folder

    def test_the_jobs_start_on_data_of_their_form(self):
        """On random weights of one small model, because those that they name are not here."""
        model, photos = self.tiny_model(), self.folder / "photos"
        for number, place in enumerate(["train/cat", "train/dog", "val/cat", "val/dog"]):
            (photos / place).mkdir(parents=True)
            Image.new("RGB", (64, 64), (number * 60, 9, 9)).save(photos / place / "1.png")
        for name, (file, text) in JOBS.items():
            with self.subTest(name):
                self.moved(file, text)
                if name.startswith("timm"):
                    settings = [f"data.train.path={photos}/train", f"data.val.path={photos}/val", "model.pretrained=null",
                                "train.micro_batch_size=1", "optimizer.lr_base_batch_size=null"]
                else:
                    record = next(record for word, record in RECORDS.items() if word in name)
                    data = self.folder / "data.jsonl"
                    data.write_text((json.dumps(record) + "\n") * 64)
                    settings = [f"data.train.path={data}", "data.train.format=jsonl", f"model.pretrained={model}"]
                    if "data/" in str((yaml.safe_load((self.folder / "job.yaml").read_text())["data"].get("val") or {}).get("path")):
                        settings += [f"data.val.path={data}", "data.val.format=jsonl"]
                run = PROGRAM.run("run", self.folder / "job.yaml", "--dry-run", "--output-dir", self.folder / "run", "--set",
                                  "device=cpu", *(word for one in settings for word in ("--set", one)))
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr + (self.folder / "job.yaml").read_text())

    def timm_job(self, text):
        found = self.moved("args.yaml", text)
        self.assertEqual(found["unknown"], [])
        return yaml.safe_load((self.folder / "job.yaml").read_text()), {one["key"].split(":")[0] for one in found["told"]}

    def test_a_model_of_timm_keeps_its_options(self):
        begin = "data_dir: photos\nepochs: 3\nbatch_size: 8\nopt: adamw\n"
        job, told = self.timm_job(begin + "model: vit_tiny_patch16_224\nmodel_ema: true\nlog_interval: 10\noutput: out\n"
                                  "pretrained: true\npretrained_path: hub/model.safetensors\ndrop: 0.1\nmodel_kwargs: "
                                  "{patch_size: 4, embed_dim: 64, depth: 2, num_heads: 2, img_size: 32, class_token: true}\n")
        self.assertEqual(job["model"]["config"], {"patch_size": 4, "n_embd": 64, "n_layer": 2, "n_head": 2, "layout": "timm"})
        self.assertEqual(job["model"]["pretrained"], "hub/model.safetensors")
        self.assertEqual((job["data"]["image"]["size"], job["data"]["image"]["mean"], job["data"]["image"]["std"]),
                         (32, [0.5] * 3, [0.5] * 3))
        self.assertEqual(job["train"]["ema"], {"decay": 0.9998, "warmup": False})
        self.assertEqual((job["log"]["interval"], job["output_dir"]), (10, "out/vit_tiny_patch16_224"))
        self.assertLessEqual({"drop", "model_kwargs"}, told)
        job, told = self.timm_job(begin + "model: mobilenetv3_large_100\nexperiment: phones\noutput: out\ndrop: 0.1\n"
                                  "model_ema: true\nmodel_ema_warmup: true\n")
        self.assertEqual((job["model"]["config"], job["output_dir"]), ({"dropout": 0.1}, "out/phones"))
        self.assertNotIn("mean", job["data"]["image"])
        self.assertNotIn("warmup", job["train"]["ema"])
        job, told = self.timm_job(begin + "model: resnet18\ndrop: 0.1\n")
        self.assertIn("drop", told)

    def test_every_key_that_the_tools_have_is_known(self):
        """By their installed packages; timm's train.py is in none."""
        packages = Path(yaml.__file__).parents[1]
        files = {"axolotl": "axolotl/utils/schemas/config.py axolotl/utils/schemas/training.py axolotl/utils/schemas/peft.py "
                            "axolotl/utils/schemas/model.py axolotl/utils/schemas/integrations.py",
                 "transformers": "transformers/training_args.py",
                 "axolotl's older names": "axolotl/utils/schemas/deprecated.py",
                 "sentence-transformers": "sentence_transformers/base/training_args.py",
                 "TRL": "trl/trainer/sft_config.py trl/trainer/dpo_config.py trl/trainer/kto_config.py "
                        "trl/trainer/reward_config.py trl/trainer/model_config.py trl/experimental/orpo/orpo_config.py"}
        inner = {"LrGroup", "PeftConfig", "LoftQConfig", "SpecialTokensConfig", "EBFTConfig", "SelectiveCheckpointingConfig"}
        for tool, names in files.items():
            classes = [one for name in names.split() for one in ast.parse((packages / name).read_text()).body
                       if isinstance(one, ast.ClassDef) and one.name not in inner]
            keys = [line.target.id for one in classes for line in one.body if isinstance(line, ast.AnnAssign)]
            self.assertGreater(len(keys), 5 if tool in ("axolotl's older names", "sentence-transformers") else 60, tool)
            for key in keys:
                if key.startswith("_"):
                    continue
                with self.subTest(f"{tool} {key}"):
                    run = PROGRAM.run("describe", key)
                    self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
