"""torchvision and transformers as reference, on small random models.

make DIR:  for each model a folder DIR/<name> with its weights as its library writes them (model.safetensors, for
           transformers also config.json) and expected.safetensors: inputs, targets, logits, loss, gradients, computed
           in fp64.
check DIR: strictly loads what gputrain wrote to DIR/<name>/ours, and compares the logits with those gputrain computed.
"""
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
import torchvision
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GPTNeoXConfig, GPTNeoXForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM,
                          MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

SMOOTHING = 0.1
SCALED = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 0.25, "high_freq_factor": 2.0,
          "original_max_position_embeddings": 16}  # keeps one frequency, lowers one in part and two wholly
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 6}
RESNETS = ["resnet18", "resnet50", "resnet18_decided", "resnet50_decided"]
GPT2 = dict(bos_token_id=None, eos_token_id=None, n_layer=2, n_head=4, n_embd=48, n_positions=24, vocab_size=89, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA = dict(num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, hidden_size=64, intermediate_size=96,
             max_position_embeddings=24, vocab_size=89, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
ODD = LLAMA | dict(hidden_size=63, num_attention_heads=7, num_key_value_heads=1, head_dim=10)  # not hidden_size / 7
GEMMA = ODD | dict(num_hidden_layers=3, vocab_size=311, sliding_window=7, query_pre_attn_scalar=12, sliding_window_pattern=2,
                   pad_token_id=None)
GEMMA.pop("rope_parameters")
OLMO = ODD | dict(num_attention_heads=6, num_key_value_heads=3, vocab_size=311, pad_token_id=None)
PHI = ODD | dict(vocab_size=311, sliding_window=7, pad_token_id=None,
                 rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.65})  # 6 of 10
EXPERTS = ODD | dict(vocab_size=311, num_experts_per_tok=2, router_aux_loss_coef=0.3)
NEOX = dict(num_hidden_layers=2, num_attention_heads=7, hidden_size=70, intermediate_size=96, max_position_embeddings=24,
            vocab_size=311, rotary_pct=0.65, rotary_emb_base=500.0)  # 6 of 10 channels
TRANSFORMERS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "gpt2_untied": lambda: GPT2LMHeadModel(
        GPT2Config(**GPT2, n_inner=80, activation_function="gelu", layer_norm_epsilon=1e-3, tie_word_embeddings=False)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**NEOX)),
    "gpt_neox_serial": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(
        **NEOX, use_parallel_residual=False, hidden_act="gelu_new", tie_word_embeddings=True)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "llama_biased": lambda: LlamaForCausalLM(
        LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-3)),
    "llama_scaled": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA | dict(rope_parameters=dict(SCALED)))),
    "llama_linear": lambda: LlamaForCausalLM(LlamaConfig(
        **LLAMA | dict(rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}))),
    "llama_yarn": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA | dict(rope_parameters=YARN | dict(
        mscale=0.7, mscale_all_dim=0.4, beta_fast=1.0, beta_slow=0.1, truncate=False)))),
    "llama_heads": lambda: LlamaForCausalLM(LlamaConfig(**ODD)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}})),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**ODD, sliding_window=7)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**EXPERTS, num_local_experts=5, sliding_window=7)),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**OLMO)),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**PHI)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA | dict(hidden_size=70, num_attention_heads=7,
                                                                 num_key_value_heads=1), tie_word_embeddings=True)),
    "qwen2_yarn": lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA | dict(rope_parameters=dict(YARN)))),
    "qwen2_windowed": lambda: Qwen2ForCausalLM(Qwen2Config(
        **LLAMA | dict(num_hidden_layers=3), use_sliding_window=True, sliding_window=7, max_window_layers=1)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**ODD, rms_norm_eps=1e-3)),
    "qwen3_windowed": lambda: Qwen3ForCausalLM(Qwen3Config(
        **ODD, use_sliding_window=True, sliding_window=5, layer_types=["sliding_attention", "full_attention"])),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **EXPERTS, num_experts=67, moe_intermediate_size=34, norm_topk_prob=True)),  # more experts than tokens use
    "qwen3_moe_mixed": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **EXPERTS | dict(num_hidden_layers=4), num_experts=6, moe_intermediate_size=34, decoder_sparse_step=2,
        mlp_only_layers=[3])),
}


def shake(model):
    """Changes every parameter and statistic from its initial value, so that an omitted one is detected."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif tensor.is_floating_point() and tensor.dim() == 1:
                tensor.add_(torch.randn_like(tensor), alpha=0.1)


def decide(model):
    """Moves every ReLU input of a ResNet far from 0 and closes some channels. Otherwise rounding decides the sign of a
    few of the millions of values, and each changes fp32 gradients by a percent (resnet50, torchvision in fp32 against
    fp64)."""
    last = "bn3" if hasattr(model.layer1[0], "bn3") else "bn2"
    with torch.no_grad():
        for name, module in model.named_modules():
            if not isinstance(module, torch.nn.BatchNorm2d):
                continue
            module.weight.uniform_(0.3, 0.4)
            if "layer" in name and name.endswith(last):
                module.bias.uniform_(0.6, 1.0)  # added to values far above 0
                continue
            module.bias.uniform_(2.4, 3.0)
            if "layer" in name and not name.endswith("downsample.1"):
                module.bias.mul_(torch.randint(4, module.bias.shape).clamp(max=1) * 2 - 1)


def gradients_of_experts(model):
    """transformers holds the matrices of all experts in one tensor; files, and gputrain, hold them apart."""
    for name, parameter in model.named_parameters():
        if ".experts." not in name:
            continue
        stem, last = name.rsplit(".", 1)
        for i, gradient in enumerate(parameter.grad):
            parts = zip(("gate_proj", "up_proj"), gradient.chunk(2)) if last == "gate_up_proj" else [(last, gradient)]
            yield from ((f"{stem}.{i}.{part}.weight", value) for part, value in parts)


def router_loss(model, tokens, targets):
    """The loss of the routers, times the targets, as part of a sum over them."""
    if not hasattr(model.config, "router_aux_loss_coef"):
        return 0
    balance = model(tokens, output_router_logits=True).aux_loss
    return model.config.router_aux_loss_coef * balance * (targets != -100).sum()


def expected(model, logits_of, inputs, targets, extra_loss=lambda: 0):
    model.double().eval()
    with torch.no_grad():
        evaluated = logits_of(inputs).clone()
    model.train()
    logits = logits_of(inputs)
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum", label_smoothing=SMOOTHING)
    loss = loss + extra_loss()
    loss.backward()
    tensors = {"inputs": inputs, "targets": targets, "logits": logits.detach(), "logits_evaluated": evaluated,
               "loss": loss.detach()}
    in_files = {"lm_head.weight": "embed_out.weight"} if isinstance(model, GPTNeoXForCausalLM) else {}
    tensors |= {f"gradient/{name}": gradient for name, gradient in gradients_of_experts(model)}
    tensors |= {f"gradient/{in_files.get(name, name)}": parameter.grad
                for name, parameter in model.named_parameters() if ".experts." not in name}
    tensors |= {f"buffer/{name}": value for name, value in model.named_buffers() if "running" in name or "num_" in name}
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def resnet(name):
    return torchvision.models.get_model(name.removesuffix("_decided"), num_classes=10)


def make_resnet(name, folder):
    model = resnet(name)
    shake(model)
    if name.endswith("_decided"):
        decide(model)
    save_file(model.state_dict(), folder / "model.safetensors")
    targets = torch.tensor([3, 9, -100, 0, 5, 1])
    save_file(expected(model, model, torch.randn(6, 3, 64, 64, dtype=torch.double), targets), folder / "expected.safetensors")


def make_transformer(name, folder):
    model = TRANSFORMERS[name]()
    model.set_experts_implementation("eager")  # grouped products do not take any size
    shake(model)
    model.save_pretrained(folder)
    inputs, targets = torch.randint(model.config.vocab_size, (2, 3, 20)).unbind()
    targets[1, 5:9] = -100
    save_file(expected(model, lambda tokens: model(tokens).logits, inputs, targets,
                       lambda: router_loss(model, inputs, targets)), folder / "expected.safetensors")


def load_strictly(name, folder):
    if name in RESNETS:
        model = resnet(name)
        model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
        return model.eval()
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    wrong = {what: keys for what, keys in info.items() if keys}
    assert not wrong, f"{name}: {wrong}"
    assert isinstance(model, type(TRANSFORMERS[name]())), type(model)
    model.set_experts_implementation("eager")
    return lambda tokens: model.eval()(tokens).logits


def check(name, folder):
    ours = load_file(folder / "results.safetensors")
    with torch.no_grad():
        logits = load_strictly(name, folder)(ours["inputs"])
    error = ((logits - ours["logits"]).norm() / logits.norm()).item()
    print(f"{name}: relative error of the logits {error:.1e}")
    return error <= 1e-5


def main():
    action, root = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(11)
    if action == "check":
        sys.exit(not all([check(name, root / name / "ours") for name in [*RESNETS, *TRANSFORMERS]]))
    for name in [*RESNETS, *TRANSFORMERS]:
        (root / name).mkdir()
        (make_resnet if name in RESNETS else make_transformer)(name, root / name)


main()
