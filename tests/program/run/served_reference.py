"""How transformers answers from folders.

usage: served_reference.py MESSAGES.json OUT.json FOLDER[:ADAPTER]...

Writes for each model {"prompt": tokens, "answer": tokens, "end": eos_token_id of the generation config}. The chat template
and the tokenizer are those of FOLDER, or of ADAPTER, whose weights are then put beside FOLDER's.
"""
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


def answer(messages, folder, adapter):
    tokenizer = AutoTokenizer.from_pretrained(adapter or folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if adapter:
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, adapter).eval()
        model.generation_config = GenerationConfig.from_pretrained(adapter)
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    tokens = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0].tolist()
    length = prompt["input_ids"].shape[1]
    return {"prompt": tokens[:length], "answer": tokens[length:], "end": model.generation_config.eos_token_id}


messages = json.loads(Path(sys.argv[1]).read_text())
answers = {model: answer(messages, *model.partition(":")[::2]) for model in sys.argv[3:]}
Path(sys.argv[2]).write_text(json.dumps(answers))
