"""Compares fine-tuning on conversations with TRL's SFTTrainer: the losses of twenty steps, of all weights and of LoRA.

usage: sft_vs_trl.py --binary build/release/bin/gputrain

Needs the packages trl, transformers, peft, datasets and tokenizers. The base is a small random Qwen3 in bf16, computed in
fp32; learned is what the assistant says. A step takes all conversations: TRL pads them, gputrain packs them into rows.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import SFTConfig, SFTTrainer

STEPS, LR, RANK, ALPHA = 20, 1e-3, 8, 16
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{% if message.role == 'assistant' %}"
          "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}"
          "{{ message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}")


def conversations():
    rows = []
    for i in range(32):
        messages = [{"role": "user", "content": f"What is {i} plus {i * 7 % 19}?"},
                    {"role": "assistant", "content": f"The sum is {i + i * 7 % 19}."}]
        if i % 3 == 0:
            messages += [{"role": "user", "content": "And again, " + "please " * (i % 7) + "?"},
                         {"role": "assistant", "content": "As I said. " + "Yes. " * (i % 5)}]
        rows.append({"messages": messages})
    return rows


def write_base(rows):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    texts = [message["content"] for row in rows for message in row["messages"]]
    made.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                            chat_template=CHATML).save_pretrained("base")
    torch.manual_seed(0)
    config = Qwen3Config(vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
                         num_attention_heads=6, num_key_value_heads=3, head_dim=32, max_position_embeddings=512,
                         tie_word_embeddings=True)
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained("base")


def losses_of_trl(rows, adapter):
    torch.manual_seed(0)
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM") if adapter else None
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained("base", dtype=torch.float32),
        args=SFTConfig(output_dir="trl", per_device_train_batch_size=len(rows), max_steps=STEPS, learning_rate=LR,
                       lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.0, max_grad_norm=0.0,
                       logging_steps=1, report_to=[], use_cpu=True, bf16=False, assistant_only_loss=True,
                       max_length=256, packing=False, save_strategy="no", gradient_checkpointing=False,
                       disable_tqdm=True),
        train_dataset=Dataset.from_list(rows), processing_class=AutoTokenizer.from_pretrained("base"), peft_config=lora)
    if adapter:
        trainer.model.save_pretrained("adapter")  # gputrain starts from the same
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def losses_of_gputrain(binary, adapter):
    model = "{type: gpt, pretrained: base" + (", adapter: {type: lora, pretrained: adapter}}" if adapter else "}")

    def job(rows):
        return (f"schema: 1\nname: sft\nprecision: fp32\nmodel: {model}\n"
                "data: {train: {path: train.jsonl, format: jsonl}, text: {tokenizer: pretrained, max_length: 256, "
                "packing: true, loss_on: assistant}}\n"
                f"train: {{max_steps: {STEPS}, global_batch_size: {rows}, micro_batch_size: 2}}\n"
                f"optimizer: {{type: adamw, lr: {LR}, weight_decay: 0}}\nlr_scheduler: {{type: constant}}\n"
                "log: {interval: 1}\n")

    with open("job.yaml", "w") as file:
        file.write(job(1))
    shown = subprocess.run([binary, "run", "job.yaml", "--dry-run"], capture_output=True, text=True, check=True).stdout
    with open("job.yaml", "w") as file:
        file.write(job(re.search(r"packed into ([\d,]+) row", shown)[1].replace(",", "")))
    folder = "lora" if adapter else "full"
    subprocess.run([binary, "run", "job.yaml", "--output-dir", folder], capture_output=True, check=True)
    with open(f"{folder}/metrics.jsonl") as lines:
        return [record["train/loss"] for record in map(json.loads, lines) if record["kind"] == "train"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    binary = os.path.abspath(parser.parse_args().binary)
    rows = conversations()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_base(rows)
        with open("train.jsonl", "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        for adapter in (False, True):
            theirs, ours = losses_of_trl(rows, adapter), losses_of_gputrain(binary, adapter)
            assert len(ours) == len(theirs) == STEPS
            worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
            print(f"{'LoRA' if adapter else 'all weights'}  loss {theirs[0]:.6f} to {theirs[-1]:.6f}, "
                  f"largest relative difference {worst:.1e}", flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
