"""How transformers answers from a folder.

usage: served_reference.py FOLDER MESSAGES.json OUT.json [ADAPTER]

Writes {"prompt": tokens, "answer": tokens, "end": eos_token_id of the generation config}. The chat template and the
tokenizer are those of FOLDER, or of ADAPTER, whose weights are then put beside FOLDER's.
"""
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

folder, messages, out = sys.argv[1:4]
adapter = sys.argv[4] if len(sys.argv) > 4 else None
tokenizer = AutoTokenizer.from_pretrained(adapter or folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
if adapter:
    from peft import PeftModel
    model = PeftModel.from_pretrained(model, adapter).eval()
    model.generation_config = GenerationConfig.from_pretrained(adapter)
text = tokenizer.apply_chat_template(json.loads(Path(messages).read_text()), tokenize=False, add_generation_prompt=True)
prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt")
tokens = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0].tolist()
length = prompt["input_ids"].shape[1]
Path(out).write_text(json.dumps({"prompt": tokens[:length], "answer": tokens[length:],
                                 "end": model.generation_config.eos_token_id}))
