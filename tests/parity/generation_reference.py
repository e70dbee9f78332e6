"""Greedy texts of transformers, on small random models.

usage: generation_reference.py DIR

For each family a folder DIR/<name> with the model as transformers writes it, and expected.json: prompts of different
lengths, and the tokens that generate() gives for each alone and for all in one batch with padding on the left.
DIR/filters.json: logits, the text before, and the probabilities that each setting of the filters leaves.
"""
import json
import sys
from pathlib import Path

import torch
from transformers.generation.logits_process import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,
                                                    TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, GPTNeoXConfig,
                          GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig,
                          MixtralForCausalLM, Phi3Config,
                          Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)

NEW_TOKENS, VOCABULARY, LENGTHS = 100, 89, (7, 1, 23, 12)
LEAST_GAP = 1e-3  # between the two highest logits: rounding must not decide
NONE = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
GPT2 = dict(NONE, n_layer=2, n_head=3, n_embd=45, n_positions=256, vocab_size=VOCABULARY, initializer_range=0.25)
LLAMA = dict(NONE, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, hidden_size=54, head_dim=10,
             intermediate_size=77, max_position_embeddings=256, vocab_size=VOCABULARY, initializer_range=0.25,
             rope_parameters={"rope_type": "default", "rope_theta": 500.0})
SCALED = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 64}
PARTIAL = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.65}  # 6 of 10 channels
NEOX = dict(NONE, num_hidden_layers=2, num_attention_heads=6, hidden_size=60, intermediate_size=77, vocab_size=VOCABULARY,
            max_position_embeddings=256, initializer_range=0.25, rotary_pct=0.65, rotary_emb_base=500.0)
GEMMA = dict(LLAMA, num_hidden_layers=3, sliding_window=20, sliding_window_pattern=2, query_pre_attn_scalar=12,
             rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}})
QWEN2 = {key: value for key, value in LLAMA.items() if key != "head_dim"}


def gemma3():
    """Its head is the embedding, and the stream begins with large ones: unchanged, it would repeat every token."""
    model = Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA))
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(0.1)
        model.model.norm.weight.fill_(9)
    return model


MODELS = {  # with a seed whose texts vary and are clear
    "gpt2": (1, lambda: GPT2LMHeadModel(GPT2Config(**GPT2))),
    "llama": (1, lambda: LlamaForCausalLM(LlamaConfig(**LLAMA))),
    "llama3": (0, lambda: LlamaForCausalLM(LlamaConfig(**LLAMA | dict(rope_parameters=SCALED)))),
    "mistral": (0, lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=20))),
    "mixtral": (3, lambda: MixtralForCausalLM(MixtralConfig(**LLAMA, num_local_experts=5))),
    "gemma3": (7, gemma3),
    "gpt_neox": (0, lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**NEOX))),
    "phi3": (6, lambda: Phi3ForCausalLM(Phi3Config(**LLAMA | dict(sliding_window=20, rope_parameters=PARTIAL)))),
    "qwen2_yarn": (3, lambda: Qwen2ForCausalLM(Qwen2Config(**QWEN2 | dict(hidden_size=60, rope_parameters=YARN)))),
    "qwen2": (8, lambda: Qwen2ForCausalLM(Qwen2Config(**QWEN2 | dict(hidden_size=60), tie_word_embeddings=True))),
    "qwen3": (10, lambda: Qwen3ForCausalLM(Qwen3Config(**LLAMA))),
    "qwen3_moe": (2, lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **LLAMA, num_experts=11, num_experts_per_tok=3, moe_intermediate_size=34))),
}


def greedy(model, prompts):
    """New tokens of prompts in one batch, and the smallest gap that decided."""
    longest = max(len(prompt) for prompt in prompts)
    rows = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    result = model.generate(rows, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0,
                            return_dict_in_generate=True, output_logits=True)
    best = torch.stack(result.logits).topk(2).values
    return result.sequences[:, longest:].tolist(), (best[..., 0] - best[..., 1]).min().item()


def make(name, folder):
    seed, build = MODELS[name]
    torch.manual_seed(seed)
    model = build().eval()
    model.set_experts_implementation("eager")  # grouped products do not take any size
    prompts = [torch.randint(VOCABULARY, (length,)).tolist() for length in LENGTHS]
    together, gap = greedy(model, prompts)
    assert gap > LEAST_GAP, f"{name}: {gap}"
    assert min(len(set(tokens)) for tokens in together) > 10, name
    assert [greedy(model, [prompt])[0][0] for prompt in prompts] == together, name
    model.save_pretrained(folder)
    (folder / "expected.json").write_text(json.dumps({"prompts": prompts, "tokens": together}))


def filters():
    torch.manual_seed(4)
    logits, text = torch.randn(1, VOCABULARY, dtype=torch.double) * 3, torch.randint(VOCABULARY, (1, 12))
    cases = []
    for values in ((1.0, 0.7, 0, 1.0, 0.0), (1.3, 1.0, 20, 1.0, 0.0), (0.8, 1.5, 0, 0.9, 0.0), (1.0, 1.0, 0, 1.0, 0.1),
                   (1.2, 0.9, 30, 0.8, 0.05), (1.0, 2.0, 3, 0.5, 0.5)):
        penalty, temperature, top_k, top_p, min_p = values
        scores = RepetitionPenaltyLogitsProcessor(penalty)(text, logits.clone())
        scores = TemperatureLogitsWarper(temperature)(text, scores)
        if top_k > 0:
            scores = TopKLogitsWarper(top_k)(text, scores)
        scores = MinPLogitsWarper(min_p)(text, TopPLogitsWarper(top_p)(text, scores))
        cases.append({"settings": values, "probabilities": scores.softmax(-1)[0].tolist()})
    return {"logits": logits[0].tolist(), "text": text[0].tolist(), "cases": cases}


def main():
    torch.set_num_threads(1)
    (Path(sys.argv[1]) / "filters.json").write_text(json.dumps(filters()))
    for name in MODELS:
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True)
        make(name, folder)


if __name__ == "__main__":
    main()
