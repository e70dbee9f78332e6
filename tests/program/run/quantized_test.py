"""Quantised bases against bitsandbytes, transformers and PEFT: what is written is equal bit for bit, what they have
written is read, and adapters train beside both as beside theirs.

usage: quantized_test.py GPUTRAIN
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
try:
    import bitsandbytes
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import (AutoModelForCausalLM, BitsAndBytesConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                              LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM)
except ImportError as missing:
    if os.environ.get("CI"):
        raise
    print(f"skipped: {missing}; scripts/requirements-test.txt lists what is needed")
    sys.exit(77)

# Scales are quantised by the package's kernel for devices without own ones; that for CPUs takes other codes for a few.
DEFAULT = torch.library.get_kernel("bitsandbytes::quantize_blockwise", "IPU")
OVERRIDE = torch.library.Library("bitsandbytes", "IMPL")
OVERRIDE.impl("quantize_blockwise", lambda *given: DEFAULT.call_boxed(
    torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *given), "CPU", allow_override=True)

WORDS = [f"w{i}" for i in range(97)]
# No size is a multiple of 64, so that blocks go across rows and the last one may be short.
SIZES = dict(num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, hidden_size=96, head_dim=32,
             intermediate_size=224, max_position_embeddings=64, vocab_size=len(WORDS))
ALIGNED = SIZES | dict(hidden_size=128, num_attention_heads=4, intermediate_size=192)  # what bitsandbytes runs on all CPUs
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=True)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=96, n_positions=64, vocab_size=len(WORDS),
                                               resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
    "aligned": lambda: Qwen3ForCausalLM(Qwen3Config(**ALIGNED, tie_word_embeddings=True)),
}
FOUR = dict(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
KINDS = {
    "nf4": (FOUR | dict(bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True), "{type: nf4}"),
    "nf4_plain": (FOUR | dict(bnb_4bit_quant_type="nf4"), "{type: nf4, double: false}"),
    "fp4": (FOUR | dict(bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=True), "{type: fp4}"),
    "int8": (dict(load_in_8bit=True), "{type: int8}"),
}
STEPS, LR = 20, 1e-3


def quantised(folder, kind, dtype="auto"):
    """The model in a 16-bit folder as transformers quantises it."""
    return AutoModelForCausalLM.from_pretrained(folder, quantization_config=BitsAndBytesConfig(**KINDS[kind][0]),
                                                dtype=dtype, device_map="cpu")


def matrix_of(name, tensors):
    """A quantised matrix in fp32, by the formulas. bitsandbytes' own kernels take wrong scales on some CPUs if a row is
    no multiple of the block, and round activations of 8 bits too."""
    codes = tensors[name]
    if (scales := tensors.get(name.removesuffix("weight") + "SCB")) is not None:
        return codes * scales.view(-1, 1) * 7.874015718698502e-3
    state = next(json.loads(bytes(value.tolist())) for key, value in tensors.items()
                 if key.startswith(name + ".quant_state"))
    pairs = torch.stack([codes.flatten() >> 4, codes.flatten() & 15], 1).flatten()
    scales = tensors[name + ".absmax"]
    if "nested_offset" in state:
        blocks = tensors[name + ".nested_absmax"].repeat_interleave(state["nested_blocksize"])[:len(scales)]
        scales = tensors[name + ".nested_quant_map"][scales.int()] * blocks + state["nested_offset"]
    rows, columns = state["shape"]
    values = tensors[name + ".quant_map"][pairs.int()][:rows * columns]
    values = values * scales.repeat_interleave(state["blocksize"])[:rows * columns]
    return values.to(getattr(torch, state["dtype"])).float().view(rows, columns)


def dequantised(folder, base):
    """The model in a quantised folder with dense fp32 weights."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tensors = load_file(folder / "model.safetensors")
    for name, module in model.named_modules():
        name = f"{name}.weight"
        if name in tensors and not tensors[name].is_floating_point():
            values = matrix_of(name, tensors)
            with torch.no_grad():
                module.weight.copy_(values.t() if type(module).__name__ == "Conv1D" else values)
    return model


class QuantizedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.holder.name)
        torch.manual_seed(3)
        tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="w0"))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        for name, make in MODELS.items():
            base = cls.folder / name / "base"
            make().to(torch.bfloat16).save_pretrained(base)
            PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0").save_pretrained(base)
        cls.ids = torch.randint(1, len(WORDS), (4, 33))
        texts = [" ".join(WORDS[i] for i in row) for row in cls.ids.tolist()]
        (cls.folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def quantised_folder(self, name, kind):
        folder = self.folder / name / kind
        if not folder.exists():
            quantised(self.folder / name / "base", kind).save_pretrained(folder)
            for file in (self.folder / name / "base").glob("tokenizer*"):
                shutil.copy(file, folder)
        return folder

    def adapter(self, name):
        folder = self.folder / name / "adapter"
        if folder.exists():
            return folder
        torch.manual_seed(5)
        base = AutoModelForCausalLM.from_pretrained(self.folder / name / "base", dtype=torch.float32)
        model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear",
                                                task_type="CAUSAL_LM", fan_in_fan_out=name == "gpt2"))
        with torch.no_grad():
            for key, value in model.named_parameters():
                if "lora_B" in key:
                    value.normal_(std=0.05)
        model.save_pretrained(folder)
        return folder

    def losses_of_peft(self, name, kind):
        base = dequantised(self.quantised_folder(name, kind), self.folder / name / "base")
        model = PeftModel.from_pretrained(base, self.adapter(name), is_trainable=True)
        rule = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)
        losses = []
        for _ in range(STEPS):
            loss = model(self.ids, labels=self.ids).loss
            rule.zero_grad()
            loss.backward()
            rule.step()
            losses.append(loss.item())
        return losses

    def program(self, *words):
        done = PROGRAM.run(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def job(self, name, folder, **changes):
        """A job with an adapter beside this folder's weights."""
        model = {"type": "gpt", "pretrained": str(folder),
                 "adapter": {"type": "lora", "pretrained": str(self.adapter(name))}} | changes.pop("model", {})
        job = {"schema": 1, "name": "quantised", "device": "cpu", "precision": "fp32", "model": model,
               "data": {"train": {"path": str(self.folder / "texts.jsonl"), "format": "jsonl"},
                        "text": {"tokenizer": "pretrained", "max_length": 40}},
               "train": {"max_steps": STEPS, "global_batch_size": 4, "micro_batch_size": 4},
               "optimizer": {"type": "adamw", "lr": LR, "weight_decay": 0}, "log": {"interval": 1}} | changes
        path = Path(tempfile.mkdtemp(dir=self.folder)) / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    def losses_of_run(self, job, *more):
        run = job.parent / "run"
        self.program("run", job, "--output-dir", run, *more)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [line["train/loss"] for line in lines if "train/loss" in line]

    def test_trains_beside_quantised_folders(self):
        for name in MODELS:
            for kind in KINDS:
                with self.subTest(model=name, kind=kind):
                    theirs = self.losses_of_peft(name, kind)
                    ours = self.losses_of_run(self.job(name, self.quantised_folder(name, kind)))
                    self.assertEqual(len(ours), STEPS)
                    self.assertLess(abs(ours[0] - theirs[0]), 1e-5 * theirs[0])
                    for mine, other in zip(ours, theirs):
                        self.assertLess(abs(mine - other), 1e-3 * other)

    def test_quantises_as_bitsandbytes(self):
        for name in MODELS:
            for kind, (_, section) in KINDS.items():
                with self.subTest(model=name, kind=kind):
                    out = self.folder / name / f"ours_{kind}"
                    self.program("export", self.folder / name / "base", out, "--format", "hf", "--set", "device=cpu",
                                "--set", f"model.quantize={section}", "--dtype", "bf16")
                    theirs = load_file(self.quantised_folder(name, kind) / "model.safetensors")
                    ours = load_file(out / "model.safetensors")
                    self.assertEqual(sorted(ours), sorted(theirs))
                    for key, value in theirs.items():
                        if "quant_state" in key:
                            self.assertEqual(json.loads(bytes(ours[key].tolist())), json.loads(bytes(value.tolist())))
                        else:
                            self.assertTrue(torch.equal(ours[key], value.to(ours[key].dtype)), key)
                    if name != "aligned":
                        continue
                    with torch.no_grad():
                        losses = [AutoModelForCausalLM.from_pretrained(folder, device_map="cpu")(
                            self.ids, labels=self.ids).loss.item() for folder in (out, self.quantised_folder(name, kind))]
                    self.assertEqual(losses[0], losses[1])


    def damaged(self, kind, change):
        """A copy of a quantised folder whose tensors are changed."""
        folder = Path(tempfile.mkdtemp(dir=self.folder)) / "damaged"
        shutil.copytree(self.quantised_folder("llama", kind), folder)
        tensors = {key: value.clone() for key, value in load_file(folder / "model.safetensors").items()}
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def test_refuses_what_cannot_be_read(self):
        weight = "model.layers.1.mlp.up_proj.weight"
        state = weight + ".quant_state.bitsandbytes__nf4"

        def changed_state(**values):
            def change(tensors):
                told = json.loads(bytes(tensors[state].tolist())) | values
                tensors[state] = torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)
            return change

        def nan(name):
            return lambda tensors: tensors[name].view(-1).__setitem__(0, float("nan"))

        cases = [
            ("nf4", lambda t: t.pop(weight + ".absmax"), "'" + weight + ".absmax' is missing"),
            ("nf4", lambda t: t.pop(weight + ".nested_absmax"), "'" + weight + ".nested_absmax' is missing"),
            ("int8", lambda t: t.pop("model.layers.1.mlp.up_proj.SCB"), "another kind of number"),
            ("nf4", changed_state(blocksize=48), "blocks of 48 weights, which are not read"),
            ("nf4", changed_state(blocksize=128), "has 336 numbers, and the matrix needs 168"),
            ("nf4", changed_state(nested_blocksize=128), "scales in blocks of other sizes than 256"),
            ("nf4", changed_state(dtype="float64"), "another dtype than bfloat16, float16 and float32"),
            ("nf4", changed_state(shape=[224, 95]), "has 10752 bytes, and its shape needs 10640"),
            ("nf4", changed_state(shape=[96, 224]), "of another shape: " + weight + " [96, 224], the model has [224, 96]"),
            ("nf4", changed_state(shape=[21504]), "no matrix"),
            ("nf4", lambda t: t[state].fill_(32), "does not say shape"),
            ("nf4", lambda t: t[weight + ".quant_map"].mul_(2), "other values than those of its type"),
            ("nf4", nan(weight + ".nested_absmax"), "NaN or infinite"),
            ("int8", nan("model.layers.1.mlp.up_proj.SCB"), "NaN or infinite"),
            ("int8", lambda t: t["model.layers.1.mlp.up_proj.weight_format"].fill_(2), "order of a GPU's tiles"),
        ]
        for kind, change, words in cases:
            with self.subTest(words=words):
                self.assert_refused(self.job("llama", self.damaged(kind, change)), 3, words)

    def assert_refused(self, job, code, words):
        done = PROGRAM.run("run", job, "--output-dir", job.parent / "run")
        self.assertIn(words, " ".join(done.stderr.split()))
        self.assertEqual(done.returncode, code)
        self.assertFalse((job.parent / "run/ckpt").exists() and list((job.parent / "run/ckpt").iterdir()))

    def test_merges_checkpoints_too_and_only_into_their_base(self):
        base = Path(tempfile.mkdtemp(dir=self.folder)) / "base"
        shutil.copytree(self.folder / "llama/base", base)
        job = self.job("llama", base, model={"quantize": {"type": "nf4"}}, train={"max_steps": 2, "global_batch_size": 4})
        run, out = job.parent / "run", job.parent / "out"
        self.program("run", job, "--output-dir", run)
        checkpoint = run / "ckpt/step-00000002"
        merged = []
        for trained in (run, checkpoint, run / "adapter"):
            self.program("export", trained, out, "--format", "hf", "--merge")
            merged.append(load_file(out / "model.safetensors"))
        for other in merged[1:]:
            self.assertTrue(all(torch.equal(merged[0][name], other[name]) for name in merged[0]))
        self.program("export", run, job.parent / "model.onnx", "--format", "onnx")
        tensors = load_file(base / "model.safetensors")
        tensors["model.layers.0.mlp.up_proj.weight"][3, 4] *= 30
        save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
        for trained in (run, checkpoint, run / "adapter"):
            done = PROGRAM.run("export", trained, out, "--format", "hf", "--merge")
            self.assertEqual(done.returncode, 3, trained)
            self.assertIn("holds other values than those that the adapter was trained on", done.stderr)
        for words, told in [(("--format", "hf", "--merge", "--set", "model.quantize.type=nf4"), "without an adapter"),
                            (("--format", "adapter", "--merge"), "is not merged")]:
            done = PROGRAM.run("export", run, job.parent / "refused", *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(told, done.stderr)

    def test_says_that_a_null_changes_nothing(self):
        for folder, is_told in ((self.quantised_folder("llama", "nf4"), True), (self.folder / "llama/base", False)):
            done = PROGRAM.run("validate", self.job("llama", folder), "--set", "model.quantize=null")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("model.quantize: null is not used" in done.stderr, is_told, done.stderr)

    def test_refuses_jobs(self):
        base, nf4 = self.folder / "llama/base", self.quantised_folder("llama", "nf4")
        other = Path(tempfile.mkdtemp(dir=self.folder)) / "other"
        shutil.copytree(nf4, other)
        config = json.loads((other / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
        (other / "config.json").write_text(json.dumps(config))
        damaged = Path(tempfile.mkdtemp(dir=self.folder)) / "nan"
        shutil.copytree(base, damaged)
        tensors = load_file(damaged / "model.safetensors")
        tensors["model.layers.0.mlp.up_proj.weight"][3, 4] = float("nan")
        save_file(tensors, damaged / "model.safetensors", metadata={"format": "pt"})
        quantize = {"quantize": {"type": "nf4"}}
        for job, code, words in [
            (self.job("llama", nf4, model={"quantize": {"type": "int8"}}), 2, "is int8 here and nf4 in the pretrained"),
            (self.job("llama", base, model={"quantize": {"type": "nf4", "block_size": 48}}), 2, "block_size"),
            (self.job("llama", other), 3, "quantised in another way than is read"),
            (self.job("llama", damaged, model=quantize), 3, "NaN or infinite"),
            (self.job("llama", nf4, model={"adapter": None}), 2, "quantised weights are not trained"),
            (self.job("llama", base, model={"quantize": {"type": "nf4", "match": ["*q_proj*", "*.no_such"]}}), 2,
             "'*.no_such' matches the weight of no dense layer"),
            (self.job("llama", base, model={"quantize": {"type": "nf4", "match": ["lm_head.*"]}}), 2,
             "there is nothing to quantise"),
            (self.job("llama", base, model=quantize | {"adapter": {"type": "lora", "merge": True}}), 2,
             "model.adapter.merge"),
            (self.job("llama", nf4, model={"adapter": {"type": "lora", "target_modules": ["q_proj"],
                                                       "modules_to_save": ["v_proj"]}}), 2, "cannot be trained itself"),
        ]:
            with self.subTest(words=words):
                self.assert_refused(job, code, words)


if __name__ == "__main__":
    unittest.main()
