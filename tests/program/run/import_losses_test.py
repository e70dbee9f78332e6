"""Jobs of other tools train as there: ten steps of the job that `gputrain import` writes have the losses of the tool's own
trainer (TRL, transformers, timm), from the same weights on the same data.

usage: import_losses_test.py GPUTRAIN
"""
import json
import os
import shutil
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
    import timm
    import torch
    import yaml
    from datasets import Dataset
    from peft import LoraConfig, PeftModel, get_peft_model
    from PIL import Image
    from safetensors.torch import save_file
    from timm.data import create_dataset, create_loader
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import create_scheduler_v2
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import (AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer,
                              TrainingArguments)
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
except ImportError as missing:
    if os.environ.get("CI"):
        raise
    print(f"skipped: {missing}; scripts/requirements-test.txt lists what is needed")
    sys.exit(77)

WORDS = [f"w{i}" for i in range(60)]
SPECIAL = ["<end>", "<pad>", "<user>", "<assistant>"]
TEMPLATE = ("{% for message in messages %}{{ '<' + message.role + '> ' }}{% if message.role == 'assistant' %}"
            "{% generation %}{{ message.content + ' <end> ' }}{% endgeneration %}{% else %}{{ message.content + ' ' }}"
            "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}")
STEPS, BATCH = 10, 4
ON_CPU = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "logging_steps": 1, "save_strategy": "no",
          "report_to": "none", "disable_tqdm": True, "per_device_train_batch_size": BATCH, "max_steps": STEPS}


def text(seed, length):
    return " ".join(WORDS[(seed * 17 + i * i + i) % len(WORDS)] for i in range(length))


CHATS = [{"messages": [{"role": "user", "content": text(i, 3 + i)}, {"role": "assistant", "content": text(i + 9, 6)}]}
         for i in range(BATCH)]
PAIRS = [{"prompt": text(i, 4), "chosen": " " + text(i + 20, 5), "rejected": " " + text(i + 40, 3 + i)} for i in range(BATCH)]


def lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


class Losses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.TemporaryDirectory(prefix="gputrain-import-")
        cls.folder = Path(cls.made.name)
        torch.manual_seed(5)
        vocabulary = {word: number for number, word in enumerate(WORDS + SPECIAL)}
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<end>"))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        cls.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>",
                                                additional_special_tokens=SPECIAL[2:])
        cls.tokenizer.chat_template = TEMPLATE
        cls.base = cls.folder / "base"
        config = LlamaConfig(num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, hidden_size=32,
                             intermediate_size=64, max_position_embeddings=64, vocab_size=len(vocabulary),
                             eos_token_id=vocabulary["<end>"], pad_token_id=vocabulary["<pad>"], tie_word_embeddings=False)
        LlamaForCausalLM(config).save_pretrained(cls.base)
        cls.tokenizer.save_pretrained(cls.base)
        cls.chats = lines(cls.folder / "chats.jsonl", CHATS)
        cls.pairs = lines(cls.folder / "pairs.jsonl", PAIRS)

    @classmethod
    def tearDownClass(cls):
        cls.made.cleanup()

    def model(self, adapter=None):
        model = AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32)
        return PeftModel.from_pretrained(model, adapter, is_trainable=True) if adapter else model

    def adapter(self, **options):
        """The folder of an untrained adapter, with which both begin."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        torch.manual_seed(6)
        get_peft_model(self.model(), LoraConfig(task_type="CAUSAL_LM", **options)).save_pretrained(folder)
        return str(folder)

    def ours(self, file, given, *settings, of="train/loss"):
        """Losses, or other values of steps, of the job that is written for another tool's."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / file).write_text(given)
        job, run = folder / "job.yaml", folder / "run"
        imported = PROGRAM.run("import", folder / file, "--output", job)
        self.assertEqual(imported.returncode, 0, imported.stdout + imported.stderr)
        trained = PROGRAM.run("run", job, "--output-dir", run, "--set", "log.interval=1", "--set", "device=cpu",
                              *(word for setting in settings for word in ("--set", setting)))
        self.assertEqual(trained.returncode, 0, trained.stdout + trained.stderr + job.read_text())
        found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [line[of] for line in found if of in line]

    def equal(self, mine, others):
        self.assertEqual(len(mine), STEPS)
        self.assertEqual(len(others), STEPS)
        for ours, theirs in zip(mine, others):
            self.assertLess(abs(ours - theirs), 1e-4 * theirs, f"{mine}\n{others}")

    def losses(self, trainer):
        trainer.train()
        return [line["loss"] for line in trainer.state.log_history if "loss" in line]

    def output(self):
        return tempfile.mkdtemp(dir=self.folder)

    def test_trl_sft(self):
        options = {"learning_rate": 2e-3, "lr_scheduler_type": "cosine", "weight_decay": 0.1, "adam_beta2": 0.95,
                   "max_length": 32}
        config = SFTConfig(output_dir=self.output(), **ON_CPU, **options)
        theirs = self.losses(SFTTrainer(self.model(), config, train_dataset=Dataset.from_list(CHATS),
                                        processing_class=self.tokenizer))
        line = " ".join(f"--{key} {value}" for key, value in (ON_CPU | options).items())
        self.equal(self.ours("sft.sh", f"trl sft --model_name_or_path {self.base} --dataset_name {self.chats} {line}\n"),
                   theirs)

    def test_trl_sft_lora_of_answers(self):
        options = {"learning_rate": 1e-2, "max_length": 32, "assistant_only_loss": True, "max_grad_norm": 0.5}
        start = self.adapter(r=4, lora_alpha=8, target_modules="all-linear")
        config = SFTConfig(output_dir=self.output(), **ON_CPU, **options)
        theirs = self.losses(SFTTrainer(self.model(start), config, train_dataset=Dataset.from_list(CHATS),
                                        processing_class=self.tokenizer))
        job = ON_CPU | options | {"model_name_or_path": str(self.base), "dataset_name": self.chats, "use_peft": True,
                                  "lora_r": 4, "lora_alpha": 8, "lora_dropout": 0, "lora_target_modules": "all-linear"}
        self.equal(self.ours("sft.yaml", yaml.safe_dump(job), f"model.adapter.pretrained={start}"), theirs)

    def test_trl_dpo_lora(self):
        options = {"learning_rate": 1e-2, "beta": 0.3, "max_length": 32}
        start = self.adapter(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
        config = DPOConfig(output_dir=self.output(), **ON_CPU, **options)
        theirs = self.losses(DPOTrainer(self.model(start), args=config, train_dataset=Dataset.from_list(PAIRS),
                                        processing_class=self.tokenizer))
        job = ON_CPU | options | {"model_name_or_path": str(self.base), "dataset_name": self.pairs, "use_peft": True,
                                  "lora_r": 4, "lora_alpha": 8, "lora_target_modules": ["q_proj", "v_proj"]}
        self.equal(self.ours("dpo.yaml", yaml.safe_dump(job), f"model.adapter.pretrained={start}"), theirs)

    def learned_answers(self):
        """Rows of the conversations in which the assistant's words and the end of its turn are learned."""
        rows = []
        for record in CHATS:
            asked = self.tokenizer.apply_chat_template(record["messages"][:1], add_generation_prompt=True, tokenize=False)
            whole = self.tokenizer.apply_chat_template(record["messages"], tokenize=False)
            ids = self.tokenizer(whole, add_special_tokens=False)["input_ids"]
            begin = len(self.tokenizer(asked, add_special_tokens=False)["input_ids"])
            rows.append({"input_ids": ids, "labels": [-100] * begin + ids[begin:]})
        return rows

    def of_trainer(self, model, **options):
        """Losses of transformers' Trainer, which LLaMA-Factory and axolotl use."""
        def padded(rows):
            longest = max(len(row["input_ids"]) for row in rows)
            fill = {"input_ids": self.tokenizer.pad_token_id, "labels": -100}
            batch = {key: torch.tensor([row[key] + [value] * (longest - len(row[key])) for row in rows])
                     for key, value in fill.items()}
            batch["attention_mask"] = (batch["input_ids"] != self.tokenizer.pad_token_id).long()
            return batch
        arguments = TrainingArguments(output_dir=self.output(), remove_unused_columns=False, **ON_CPU, **options)
        return self.losses(Trainer(model, arguments, train_dataset=self.learned_answers(), data_collator=padded))

    def test_llama_factory_lora(self):
        start = self.adapter(r=8, lora_alpha=16, target_modules="all-linear")
        theirs = self.of_trainer(self.model(start), learning_rate=1e-2, lr_scheduler_type="cosine")
        shutil.copy(self.chats, self.folder / "tickets.jsonl")
        (self.folder / "dataset_info.json").write_text(json.dumps(
            {"tickets": {"file_name": "tickets.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"}}}))
        job = {"model_name_or_path": str(self.base), "stage": "sft", "do_train": True, "finetuning_type": "lora",
               "lora_target": "all", "dataset": "tickets", "dataset_dir": str(self.folder), "cutoff_len": 32,
               "per_device_train_batch_size": BATCH, "max_steps": STEPS, "learning_rate": 1e-2,
               "lr_scheduler_type": "cosine", "disable_gradient_checkpointing": True, "output_dir": "out"}
        self.equal(self.ours("job.yaml.lf.yaml", yaml.safe_dump(job), f"model.adapter.pretrained={start}"), theirs)

    def test_axolotl_full(self):
        theirs = self.of_trainer(self.model(), learning_rate=2e-3, lr_scheduler_type="cosine_with_min_lr",
                                 lr_scheduler_kwargs={"min_lr": 2e-4}, weight_decay=0.01, max_grad_norm=1.0)
        job = {"base_model": str(self.base), "datasets": [{"path": self.chats, "ds_type": "json", "type": "chat_template"}],
               "sequence_len": 32, "micro_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": STEPS,
               "optimizer": "adamw_torch", "lr_scheduler": "cosine", "cosine_min_lr_ratio": 0.1, "learning_rate": 2e-3,
               "weight_decay": 0.01, "max_grad_norm": 1.0, "warmup_steps": 0, "output_dir": "out"}
        self.equal(self.ours("config.yml", yaml.safe_dump(job)), theirs)

    def photos(self):
        """A folder with eight images for training, and as many for validation."""
        data = Path(tempfile.mkdtemp(dir=self.folder))
        torch.manual_seed(7)
        for split in ("train", "val"):
            for name in ("cat", "dog"):
                (data / split / name).mkdir(parents=True)
                for i in range(4):
                    pixels = torch.randint(0, 256, (32, 32, 3), dtype=torch.uint8).numpy()
                    Image.fromarray(pixels).save(data / split / name / f"{i}.png")
        return data

    def test_timm_rates(self):
        """By its own defaults: once an epoch, from a rate of its own."""
        data = self.photos()
        for options, words in [
                ({"num_epochs": 5, "warmup_epochs": 2, "cooldown_epochs": 1, "min_lr": 1e-4},
                 "--epochs 5 --warmup-epochs 2 --cooldown-epochs 1 --min-lr 1e-4"),
                ({"num_epochs": 5, "warmup_epochs": 2, "warmup_prefix": True, "warmup_lr": 1e-3, "step_on_epochs": False},
                 "--epochs 5 --warmup-epochs 2 --warmup-prefix --warmup-lr 1e-3 --sched-on-updates"),
                ({"sched": "poly", "num_epochs": 5, "decay_rate": 2.0}, "--sched poly --epochs 5 --decay-rate 2.0 --warmup-epochs 0"),
                ({"sched": "step", "num_epochs": 6, "decay_epochs": 2, "decay_rate": 0.5, "warmup_epochs": 1, "warmup_prefix": True},
                 "--sched step --epochs 6 --decay-epochs 2 --decay-rate 0.5 --warmup-epochs 1 --warmup-prefix"),
                ({"sched": "multistep", "num_epochs": 6, "decay_milestones": [2, 5], "warmup_epochs": 1},
                 "--sched multistep --epochs 6 --decay-milestones 2 5 --warmup-epochs 1"),
                ({"sched": "wsd", "num_epochs": 6, "decay_epochs": 2, "warmup_epochs": 1},
                 "--sched wsd --epochs 6 --decay-epochs 2 --warmup-epochs 1")]:
            with self.subTest(words):
                rule = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.02)
                rates, epochs = create_scheduler_v2(rule, updates_per_epoch=2, **options)
                theirs = []
                for epoch in range(epochs):
                    for step in range(2 * epoch, 2 * epoch + 2):
                        theirs.append(rule.param_groups[0]["lr"])
                        rates.step_update(step + 1)
                    rates.step(epoch + 1)
                line = f"python train.py {data} --model resnet18 --img-size 32 -b 4 --opt sgd --lr 0.02 {words}\n"
                mine = self.ours("train.sh", line, "eval.interval=null", "model.config.width=8", of="train/lr")
                self.assertEqual(len(mine), len(theirs), f"{mine}\n{theirs}")
                for ours, other in zip(mine, theirs):
                    self.assertLess(abs(ours - other), 1e-9, f"{mine}\n{theirs}")

    def test_timm_resnet(self):
        data = self.photos()
        model = timm.create_model("resnet18", num_classes=2)
        start = self.folder / "resnet18.safetensors"
        save_file(model.state_dict(), start)
        loader = create_loader(create_dataset("", root=str(data), split="train"), input_size=(3, 32, 32), batch_size=8,
                               is_training=True, use_prefetcher=False, no_aug=True, num_workers=0)
        rule = create_optimizer_v2(model, opt="sgd", lr=0.02, momentum=0.9, weight_decay=1e-4)
        rates, _ = create_scheduler_v2(rule, sched="cosine", num_epochs=STEPS, updates_per_epoch=1, step_on_epochs=False,
                                       warmup_epochs=0, min_lr=1e-3)
        loss_of, theirs = LabelSmoothingCrossEntropy(0.1), []
        for step in range(STEPS):
            for images, labels in loader:
                loss = loss_of(model(images), labels)
                rule.zero_grad()
                loss.backward()
                rule.step()
                rates.step_update(step + 1)
                theirs.append(loss.item())
        line = (f"python train.py {data} --model resnet18 --initial-checkpoint {start} --no-aug --img-size 32 --crop-pct 1.0 "
                f"-b 8 --opt sgd --lr 0.02 --weight-decay 1e-4 --sched cosine --epochs {STEPS} --warmup-epochs 0 "
                "--min-lr 1e-3 --sched-on-updates --seed 3\n")
        self.equal(self.ours("train.sh", line, "eval.interval=null"), theirs)


if __name__ == "__main__":
    unittest.main(verbosity=2)
