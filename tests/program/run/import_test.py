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

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
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
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from foreign_jobs import AXOLOTL, LLAMA_FACTORY, TIMM, TRL
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

    def test_wrong_files_are_refused_with_the_reason(self):
        for file, text, why in [
                ("a.yaml", "", "no keys"), ("a.yaml", "- 1", "no keys"), ("a.yaml", "a: [", "is not closed"),
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
        return flat, {one["key"] for one in found["told"]}

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
        hub = self.folder / "hub"
        snapshot = hub / "models--timm--resnet50.mine" / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (snapshot.parents[1] / "refs").mkdir()
        (snapshot.parents[1] / "refs" / "main").write_text("a" * 40)
        (snapshot / "config.json").write_text(json.dumps({"architecture": "resnet50", "pretrained_cfg": {
            "input_size": [3, 160, 160], "crop_pct": 0.5, "interpolation": "bilinear", "mean": half, "std": half}}))
        os.environ["HF_HUB_CACHE"] = str(hub)
        self.addCleanup(os.environ.pop, "HF_HUB_CACHE")
        job, _ = self.settings_of("--model resnet50.mine --pretrained")
        self.assertEqual([job["data.image.size"], job["data.image.eval.resize"], job["data.image.mean"],
                          job["data.image.eval.interpolation"]], [160, 320, half, "bilinear"])

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

    def test_every_key_that_the_tools_have_is_known(self):
        """By their installed packages; timm's train.py is in none."""
        packages = Path(yaml.__file__).parents[1]
        files = {"axolotl": "axolotl/utils/schemas/config.py axolotl/utils/schemas/training.py axolotl/utils/schemas/peft.py "
                            "axolotl/utils/schemas/model.py axolotl/utils/schemas/integrations.py",
                 "transformers": "transformers/training_args.py",
                 "TRL": "trl/trainer/sft_config.py trl/trainer/dpo_config.py trl/trainer/kto_config.py "
                        "trl/trainer/reward_config.py trl/trainer/model_config.py trl/experimental/orpo/orpo_config.py"}
        inner = {"LrGroup", "PeftConfig", "LoftQConfig", "SpecialTokensConfig", "EBFTConfig", "SelectiveCheckpointingConfig"}
        for tool, names in files.items():
            classes = [one for name in names.split() for one in ast.parse((packages / name).read_text()).body
                       if isinstance(one, ast.ClassDef) and one.name not in inner]
            keys = [line.target.id for one in classes for line in one.body if isinstance(line, ast.AnnAssign)]
            self.assertGreater(len(keys), 60, tool)
            for key in keys:
                if key.startswith("_"):
                    continue
                with self.subTest(f"{tool} {key}"):
                    run = PROGRAM.run("describe", key)
                    self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
