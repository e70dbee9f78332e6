"""PEFT as reference for LoRA, on small random models of transformers.

make DIR:  for each case a folder DIR/<name> with base/ and adapter/ as transformers and PEFT write them, and
           expected.safetensors: inputs, logits, and the losses and last logits of steps with AdamW on batches.
check DIR: loads base/ with the adapter that gputrain wrote to DIR/<name>/ours and compares the logits with those that
           gputrain computed, and so for the merged model in DIR/<name>/merged.
"""
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM)

STEPS, LR = 20, 1e-3
LLAMA = dict(num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, hidden_size=64, intermediate_size=96,
             max_position_embeddings=24, vocab_size=89, tie_word_embeddings=False)
GPT2 = dict(bos_token_id=None, eos_token_id=None, n_layer=2, n_head=4, n_embd=48, n_positions=24, vocab_size=89,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
CASES = {
    "llama": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
              dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "llama_saved": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
                    dict(r=3, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "v_proj"],
                         modules_to_save=["lm_head"])),
    "llama_head": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
                   dict(r=3, lora_alpha=5, target_modules=["lm_head", "up_proj"])),
    "qwen2": (lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA | dict(tie_word_embeddings=True))),
              dict(r=2, lora_alpha=4, target_modules=r".*\.(q_proj|down_proj)")),
    "gpt2": (lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
             dict(r=4, lora_alpha=16, target_modules="all-linear", fan_in_fan_out=True)),
    "llama_dora": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
                   dict(r=4, lora_alpha=8, use_dora=True, target_modules="all-linear")),
    "qwen2_dora": (lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA)),
                   dict(r=3, lora_alpha=5, use_dora=True, use_rslora=True, target_modules=["q_proj", "lm_head"])),
    "gpt2_dora": (lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
                  dict(r=4, lora_alpha=16, use_dora=True, target_modules="all-linear", fan_in_fan_out=True)),
    "llama_sizes": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
                    dict(r=4, lora_alpha=8, target_modules="all-linear", rank_pattern={"down_proj": 2, r"layers\.1\..*q_proj": 6},
                         alpha_pattern={"self_attn.v_proj": 3.5})),
    "llama_plus": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
                   dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "llama_pissa": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
                    dict(r=4, lora_alpha=8, init_lora_weights="pissa", target_modules="all-linear")),
    "gpt2_pissa": (lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
                   dict(r=4, lora_alpha=6, init_lora_weights="pissa", target_modules="all-linear", fan_in_fan_out=True)),
    "llama_olora": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
                    dict(r=4, lora_alpha=8, init_lora_weights="olora", target_modules="all-linear")),
    "llama_pissa_dora": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
                         dict(r=4, lora_alpha=8, init_lora_weights="pissa", use_dora=True, use_rslora=True,
                              target_modules="all-linear")),
}


def train(model, batches, plus):
    """The losses of the steps, each of the mean over its targets. plus: with LoRA+."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rule = (create_loraplus_optimizer(model, torch.optim.AdamW, lr=LR, loraplus_lr_ratio=16, loraplus_weight_decay=0.01)
            if plus else torch.optim.AdamW(parameters, lr=LR, weight_decay=0.01))
    losses = []
    for batch in batches:
        loss = F.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
        rule.zero_grad()
        loss.backward()
        rule.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.double)


def make(name, folder):
    build, options = CASES[name]
    build().save_pretrained(folder / "base")
    base = AutoModelForCausalLM.from_pretrained(folder / "base")
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **options))
    if "init_lora_weights" not in options:
        with torch.no_grad():
            for key, value in model.named_parameters():
                if "lora_B" in key:
                    value.normal_(std=0.1)
        model.save_pretrained(folder / "adapter")
    inputs, batches = torch.randint(89, (3, 20)), torch.randint(89, (STEPS, 4, 13))
    with torch.no_grad():
        logits = model(inputs).logits.clone()
    losses = train(model, batches, name.endswith("plus"))
    with torch.no_grad():
        trained = model(inputs).logits
    save_file({"inputs": inputs, "batches": batches, "logits": logits, "losses": losses, "trained": trained},
              folder / "expected.safetensors")


def error_of(logits, expected):
    return ((logits - expected).norm() / expected.norm()).item()


def check(name, folder):
    ours = load_file(folder / "results.safetensors")
    with torch.no_grad():
        base = AutoModelForCausalLM.from_pretrained(folder / "base")
        model = PeftModel.from_pretrained(base, folder / "ours")
        kept = {key.replace(".default", "").replace("vector.weight", "vector") for key in model.state_dict()}
        strangers = [key for key in load_file(folder / "ours/adapter_model.safetensors") if "lora" in key and key not in kept]
        assert not strangers, strangers
        loaded = error_of(model.eval()(ours["inputs"]).logits, ours["logits"])
        merged = AutoModelForCausalLM.from_pretrained(folder / "merged").eval()
        error = max(loaded, error_of(merged(ours["inputs"]).logits, ours["logits"]))
    print(f"{name}: relative error of the logits {loaded:.1e}, of the merged model's {error:.1e}")
    return error <= 1e-5


def main():
    action, root = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(11)
    if action == "check":
        sys.exit(not all([check(name, root / name) for name in CASES]))
    for name in CASES:
        (root / name).mkdir()
        make(name, root / name)


main()
