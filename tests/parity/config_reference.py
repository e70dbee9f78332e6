"""Writes configs.json: config.json files of each family that lack a key, and the same with what transformers fills in.

config_reference.py make FOLDER
"""
import json
import pathlib
import sys

import transformers

SIZES = {"vocab_size": 300, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64,
         "max_position_embeddings": 80}
LLAMA = {**SIZES, "num_key_value_heads": 2, "rms_norm_eps": 0.003, "tie_word_embeddings": True,
         "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}}
WINDOWS = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
EXPERTS = {"num_experts_per_tok": 3}
BERT = {**SIZES, "hidden_act": "relu", "layer_norm_eps": 0.003, "type_vocab_size": 3, "hidden_dropout_prob": 0.25,
        "attention_probs_dropout_prob": 0.35, "classifier_dropout": 0.45}

# Of each family values other than the defaults.
FAMILIES = {
    "Llama": {**LLAMA, "head_dim": 16, "attention_bias": True, "mlp_bias": True},
    "Mistral": {**LLAMA, "head_dim": 16, "sliding_window": 16},
    "Mixtral": {**LLAMA, **EXPERTS, "num_local_experts": 4, "sliding_window": 16},
    "Olmo2": LLAMA,
    "Phi3": {**LLAMA, "sliding_window": 16, "pad_token_id": 0},
    "Qwen2": {**LLAMA, **WINDOWS},
    "Qwen3": {**LLAMA, **WINDOWS, "head_dim": 16},
    "Qwen3Moe": {**LLAMA, **EXPERTS, "num_experts": 4, "moe_intermediate_size": 24, "norm_topk_prob": True,
                 "mlp_only_layers": [1]},
    "GPT2": {"vocab_size": 300, "n_embd": 96, "n_layer": 3, "n_head": 4, "n_inner": 64, "n_positions": 80,
             "activation_function": "relu", "layer_norm_epsilon": 0.003, "tie_word_embeddings": False},
    "GPTNeoX": {**SIZES, "hidden_act": "relu", "layer_norm_eps": 0.003, "use_parallel_residual": False,
                "tie_word_embeddings": True,
                "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5}},
    "Gemma3Text": {**LLAMA, "head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 8, "tie_word_embeddings": False,
                   "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 700.0},
                                       "sliding_attention": {"rope_type": "default", "rope_theta": 70.0}}},
    "Bert": BERT,
    "Roberta": {**BERT, "pad_token_id": 3},
    "XLMRoberta": {**BERT, "pad_token_id": 3},
    "Camembert": {**BERT, "pad_token_id": 3},
    "DistilBert": {"vocab_size": 300, "dim": 96, "n_layers": 3, "n_heads": 4, "hidden_dim": 64,
                   "max_position_embeddings": 80, "activation": "relu", "dropout": 0.25, "attention_dropout": 0.35,
                   "seq_classif_dropout": 0.45},
    "ModernBert": {**SIZES, "hidden_activation": "relu", "norm_eps": 0.003, "local_attention": 16,
                   "embedding_dropout": 0.25, "mlp_dropout": 0.25, "attention_dropout": 0.35, "classifier_dropout": 0.45,
                   "classifier_pooling": "mean", "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2,
                   "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 700.0},
                                       "sliding_attention": {"rope_type": "default", "rope_theta": 70.0}}},
}


def plain(config):
    return json.loads(json.dumps(config.to_dict()))


def cases(name, values):
    kind = getattr(transformers, name + "Config")
    for whole in (plain(kind(**values)), plain(kind())):
        for key in whole:
            if key == "model_type":
                continue
            lacking = {k: v for k, v in whole.items() if k != key}
            try:
                filled = plain(kind.from_dict(dict(lacking)))
            except Exception as error:  # it insists on the key
                print(f"{name} without {key}: {error}", file=sys.stderr)
                continue
            yield {"family": name, "key": key, "lacking": lacking, "filled": {**filled, "model_type": kind.model_type}}


def main():
    folder = pathlib.Path(sys.argv[2])
    found = [case for name, values in FAMILIES.items() for case in cases(name, values)]
    (folder / "configs.json").write_text(json.dumps(found))


main()
