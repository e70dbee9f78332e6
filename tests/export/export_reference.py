"""Published models with random weights, and what the packages gguf and transformers read of the exports.

usage: export_reference.py make DIR     writes DIR/NAME/base for each family
       export_reference.py check DIR    reads DIR/NAME/{f32,q8_0}.gguf and DIR/NAME/hf, and compares with the base
"""
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (AutoModelForCausalLM, AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config,
                          GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM,
                          MixtralConfig, MixtralForCausalLM, Phi3Config, Phi3ForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
TEXT = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen liquor jugs 123"] * 3
SIZES = dict(vocab_size=320, hidden_size=72, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6,
             max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2, head_dim=16, rope_parameters=LLAMA3)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, num_key_value_heads=3, head_dim=32)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=3)),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **SIZES, num_key_value_heads=3, head_dim=32, num_experts=11, moe_intermediate_size=64, norm_topk_prob=True,
        num_experts_per_tok=2)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, num_key_value_heads=2, head_dim=16,
                                                                   query_pre_attn_scalar=16)),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**SIZES, num_key_value_heads=2)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, rotary_pct=0.5)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=320, n_embd=72, n_layer=2, n_head=6, n_positions=64)),
}
ARCHITECTURES = {"llama": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE", "mixtral": "LLAMA", "gemma3": "GEMMA3", "phi3": "PHI3",
                 "gpt_neox": "GPTNEOX", "gpt2": "GPT2"}


def tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "<end>"],
        show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="<end>", chat_template="{{ 1 }}")


def make(folder):
    for number, (name, build) in enumerate(MODELS.items()):
        torch.manual_seed(number)
        model = build()
        for parameter in model.parameters():  # also where all are ones or zeros
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder / name / "base")
        tokenizer().save_pretrained(folder / name / "base")


def expected(name, key, value, config):
    """A tensor of transformers as llama.cpp stores it."""
    if name in ("llama", "mixtral") and ("q_proj" in key or "k_proj" in key):
        heads = config.num_attention_heads if "q_proj" in key else config.num_key_value_heads
        return value.reshape(heads, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
    if name == "gemma3" and key.endswith("norm.weight"):
        return value + 1
    if name == "gpt_neox" and "query_key_value" in key:
        apart = value.reshape(config.num_attention_heads, 3, -1, *value.shape[1:])
        return np.concatenate([apart[:, part].reshape(-1, *value.shape[1:]) for part in range(3)])
    if name == "gpt2" and ".c_" in key and value.ndim == 2:
        return value.T
    return value


def parts_of(key, value):
    """transformers holds gate and up of all experts in one tensor."""
    if not key.endswith("gate_up_proj"):
        return [(key, value)]
    stem = key.removesuffix("gate_up_proj")
    return list(zip((stem + "gate_proj", stem + "up_proj"), np.split(value, 2, axis=1)))


def check_gguf(name, folder, model, tolerance, stored):
    reader = gguf.GGUFReader(folder / f"{stored}.gguf")
    architecture = gguf.MODEL_ARCH[ARCHITECTURES[name]]
    field = {key: reader.fields[key].contents() for key in reader.fields}
    assert field["general.architecture"] == gguf.MODEL_ARCH_NAMES[architecture]
    names = gguf.get_tensor_name_map(architecture, model.config.num_hidden_layers)
    found = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    for key, parameter in model.state_dict().items():
        if key.endswith((".masked_bias", ".attn.bias")) or model.config.tie_word_embeddings and key == "lm_head.weight":
            continue
        for part, value in parts_of(key, parameter.numpy()):
            want = expected(name, part, value, model.config)
            stored_name = names.get_name(part, try_suffixes=(".weight", ".bias"))
            got = found.pop(stored_name if stored_name in found else f"{stored_name}.weight")
            assert got.shape == want.shape, (part, got.shape, want.shape)
            assert np.abs(got - want).max() <= tolerance * np.abs(want).max(), part
    assert set(found) <= {"rope_freqs.weight"}, set(found)
    if name in ("mixtral", "qwen3_moe"):
        prefix = gguf.MODEL_ARCH_NAMES[architecture]
        assert field[f"{prefix}.expert_used_count"] == 2
        assert field[f"{prefix}.expert_count"] == model.config.num_local_experts
    if name == "llama":
        inverse = model.model.rotary_emb.inv_freq
        plain = 1 / 5e5 ** (np.arange(0, 16, 2) / 16)
        assert np.allclose(plain / found["rope_freqs.weight"], inverse.numpy(), rtol=1e-5)
    tokens = AutoTokenizer.from_pretrained(folder / "base")
    assert field["tokenizer.ggml.model"] == "gpt2" and field["tokenizer.ggml.pre"] == "qwen2"
    assert field["tokenizer.ggml.tokens"][:300] == tokens.convert_ids_to_tokens(list(range(300)))
    assert len(field["tokenizer.ggml.tokens"]) == 320
    assert field["tokenizer.ggml.token_type"][:2] == [gguf.TokenType.CONTROL] * 2
    assert field["tokenizer.ggml.token_type"][300:] == [gguf.TokenType.UNUSED] * 20
    merges = tokens.backend_tokenizer.to_str()
    assert all(f'"{a}"' in merges for a in field["tokenizer.ggml.merges"][0].split(" "))
    assert (field["tokenizer.ggml.bos_token_id"], field["tokenizer.ggml.eos_token_id"]) == (0, 1)
    assert field["tokenizer.chat_template"] == "{{ 1 }}"


def check(folder):
    for name in MODELS:
        base = AutoModelForCausalLM.from_pretrained(folder / name / "base", dtype=torch.float32)
        check_gguf(name, folder / name, base, 0, "f32")
        check_gguf(name, folder / name, base, 0.01, "q8_0")
        again = AutoModelForCausalLM.from_pretrained(folder / name / "hf", dtype=torch.float32)
        assert len(list((folder / name / "hf").glob("model-*-of-*.safetensors"))) > 1
        for key, parameter in base.state_dict().items():
            assert torch.equal(parameter, again.state_dict()[key]), (name, key)
        ids = torch.tensor([[5, 77, 250, 3, 9]])
        with torch.no_grad():
            assert torch.equal(base(ids).logits, again(ids).logits), name
        one, other = (AutoTokenizer.from_pretrained(folder / name / part) for part in ("base", "hf"))
        assert one(TEXT).input_ids == other(TEXT).input_ids


{"make": make, "check": check}[sys.argv[1]](Path(sys.argv[2]))
