"""Jobs that users of other tools have: the keys and values of public examples, written down anew."""

EMPTY = dict.fromkeys(["wandb_project", "wandb_entity", "wandb_watch", "wandb_name", "wandb_log_model",
                       "resume_from_checkpoint", "special_tokens"])
OLD = EMPTY | dict.fromkeys(["early_stopping_patience", "local_rank", "xformers_attention", "debug", "deepspeed", "fsdp",
                             "fsdp_config"])
USUAL = {"load_in_8bit": False, "load_in_4bit": False, "strict": False, "optimizer": "adamw_bnb_8bit",
         "lr_scheduler": "cosine", "bf16": "auto", "tf32": False, "gradient_checkpointing": True, "logging_steps": 1,
         "flash_attention": True, "warmup_steps": 10, "evals_per_epoch": 4, "saves_per_epoch": 1, "weight_decay": 0.0}
LINEAR = ["gate_proj", "down_proj", "up_proj", "q_proj", "v_proj", "k_proj", "o_proj"]
FSDP = {"fsdp_limit_all_gathers": True, "fsdp_sync_module_states": True, "fsdp_offload_params": True,
        "fsdp_use_orig_params": False, "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer",
        "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_sharding_strategy": "FULL_SHARD"}
LIGER = {"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_rope": True, "liger_rms_norm": True,
         "liger_glu_activation": True, "liger_fused_linear_cross_entropy": True}
CHAT_PAIRS = {"path": "fozziethebeat/alpaca_messages_2k_dpo_test", "type": "chat_template.default",
              "field_messages": "conversation", "field_chosen": "chosen", "field_rejected": "rejected",
              "message_property_mappings": {"role": "role", "content": "content"},
              "roles": {"system": ["system"], "user": ["user"], "assistant": ["assistant"]}}

AXOLOTL = {
    "lora_1b": OLD | USUAL | {
        "base_model": "NousResearch/Llama-3.2-1B", "optimizer": "adamw_8bit", "fp16": None,
        "datasets": [{"path": "teknium/GPT4-LLM-Cleaned", "type": "alpaca"}],
        "dataset_prepared_path": "last_run_prepared", "val_set_size": 0.1, "output_dir": "./outputs/lora-out",
        "adapter": "lora", "lora_model_dir": None, "sequence_len": 2048, "sample_packing": True,
        "eval_sample_packing": True, "pad_to_sequence_len": True, "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05,
        "lora_fan_in_fan_out": None, "lora_target_modules": LINEAR, "gradient_accumulation_steps": 2,
        "micro_batch_size": 2, "num_epochs": 1, "learning_rate": 0.0002, "train_on_inputs": False,
        "group_by_length": False, "loss_watchdog_threshold": 5.0, "loss_watchdog_patience": 3,
        "special_tokens": {"pad_token": "<|end_of_text|>"}},
    "fft_8b_liger_fsdp": EMPTY | USUAL | LIGER | {
        "base_model": "NousResearch/Meta-Llama-3.1-8B", "chat_template": "llama3",
        "datasets": [{"path": "mlabonne/FineTome-100k", "type": "chat_template", "split": "train[:20%]",
                      "field_messages": "conversations",
                      "message_property_mappings": {"role": "from", "content": "value"}}],
        "dataset_prepared_path": "last_run_prepared", "val_set_size": 0.02, "output_dir": "./outputs/out",
        "sequence_len": 4096, "sample_packing": True, "pad_to_sequence_len": True, "gradient_accumulation_steps": 4,
        "micro_batch_size": 2, "num_epochs": 1, "optimizer": "adamw_torch_fused", "learning_rate": 2e-5,
        "gradient_checkpointing_kwargs": {"use_reentrant": False}, "warmup_steps": 100, "evals_per_epoch": 2,
        "fsdp": ["full_shard", "auto_wrap"], "fsdp_config": FSDP | {"fsdp_backward_prefetch": "BACKWARD_PRE"},
        "special_tokens": {"pad_token": "<|finetune_right_pad_id|>", "eos_token": "<|eot_id|>"}},
    "dpo_lora_8b": EMPTY | USUAL | {
        "base_model": "meta-llama/Meta-Llama-3-8B-Instruct", "model_type": "LlamaForCausalLM",
        "tokenizer_type": "AutoTokenizer", "load_in_8bit": True, "chat_template": "llama3", "rl": "dpo",
        "datasets": [CHAT_PAIRS], "dataset_prepared_path": None, "val_set_size": 0.05,
        "output_dir": "./outputs/lora-out", "sequence_len": 4096, "sample_packing": False, "pad_to_sequence_len": True,
        "adapter": "lora", "lora_model_dir": None, "lora_r": 32, "lora_alpha": 16, "lora_dropout": 0.05,
        "lora_target_linear": True, "gradient_accumulation_steps": 4, "micro_batch_size": 2, "num_epochs": 4,
        "learning_rate": 0.0002},
    "qwen3_lora_fsdp2": EMPTY | USUAL | LIGER | {
        "base_model": "Qwen/Qwen3-32B", "liger_layer_norm": True,
        "datasets": [{"path": "tatsu-lab/alpaca", "type": "alpaca"}], "output_dir": "./outputs/qat_out/",
        "adapter": "lora", "lora_r": 32, "lora_alpha": 16, "lora_dropout": 0.05, "lora_target_linear": True,
        "sequence_len": 256, "sample_packing": True, "pad_to_sequence_len": True, "gradient_accumulation_steps": 1,
        "micro_batch_size": 1, "max_steps": 2000, "optimizer": "adamw_torch_fused", "learning_rate": 2e-5, "bf16": True,
        "evals_per_epoch": 1,
        "fsdp_config": {"fsdp_version": 2, "fsdp_offload_params": False, "fsdp_cpu_ram_efficient_loading": True,
                        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                        "fsdp_transformer_layer_cls_to_wrap": "Qwen3DecoderLayer",
                        "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_sharding_strategy": "FULL_SHARD",
                        "fsdp_reshard_after_forward": True, "fsdp_activation_checkpointing": True}},
    "qwen3_qlora_fsdp": EMPTY | USUAL | {
        "base_model": "Qwen/Qwen3-8B", "load_in_4bit": True, "datasets": [{"path": "tatsu-lab/alpaca", "type": "alpaca"}],
        "dataset_prepared_path": None, "val_set_size": 0.05, "output_dir": "./outputs/out", "sequence_len": 2048,
        "sample_packing": True, "eval_sample_packing": True, "pad_to_sequence_len": True, "adapter": "qlora",
        "lora_r": 32, "lora_alpha": 64, "lora_dropout": 0.05, "lora_target_linear": True,
        "gradient_accumulation_steps": 4, "micro_batch_size": 1, "num_epochs": 1, "optimizer": "adamw_torch_fused",
        "learning_rate": 0.0002, "tf32": True, "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "fsdp": ["full_shard", "auto_wrap"], "fsdp_config": FSDP},
    "mistral_full": OLD | USUAL | {
        "base_model": "mistralai/Mistral-7B-v0.1", "model_type": "MistralForCausalLM", "tokenizer_type": "LlamaTokenizer",
        "is_mistral_derived_model": True, "datasets": [{"path": "mhenrichsen/alpaca_2k_test", "type": "alpaca"}],
        "val_set_size": 0.05, "output_dir": "./out", "sequence_len": 8192, "sample_packing": True,
        "pad_to_sequence_len": True, "eval_sample_packing": False, "gradient_accumulation_steps": 4,
        "micro_batch_size": 2, "num_epochs": 4, "learning_rate": 0.000005, "train_on_inputs": False,
        "group_by_length": False, "eval_table_size": None, "eval_table_max_new_tokens": 128,
        "special_tokens": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}},
    "gemma2_reward": OLD | USUAL | {
        "base_model": "google/gemma-2-2b", "model_type": "AutoModelForSequenceClassification", "num_labels": 1,
        "tokenizer_type": "AutoTokenizer", "reward_model": True, "chat_template": "gemma",
        "datasets": [{"path": "argilla/distilabel-intel-orca-dpo-pairs", "type": "bradley_terry.chat_template"}],
        "val_set_size": 0.0, "output_dir": "./outputs/out", "remove_unused_columns": False, "sequence_len": 2048,
        "sample_packing": False, "eval_sample_packing": False, "pad_to_sequence_len": True,
        "gradient_accumulation_steps": 4, "micro_batch_size": 2, "num_epochs": 4, "learning_rate": 0.0002, "bf16": True,
        "tf32": True, "warmup_steps": None, "warmup_ratio": 0.1, "evals_per_epoch": None, "eval_max_new_tokens": 128},
    "mistral_qlora_orpo": OLD | USUAL | {
        "base_model": "mistralai/Mistral-7B-v0.1", "load_in_4bit": True, "rl": "orpo", "orpo_alpha": 0.1,
        "remove_unused_columns": False, "chat_template": "chatml",
        "datasets": [{"path": "argilla/ultrafeedback-binarized-preferences-cleaned", "type": "orpo.chat_template"}],
        "val_set_size": 0.1, "output_dir": "./mistral-qlora-orpo-out", "adapter": "qlora", "sequence_len": 4096,
        "sample_packing": False, "pad_to_sequence_len": True, "lora_r": 32, "lora_alpha": 16, "lora_dropout": 0.05,
        "lora_target_linear": True, "lora_target_modules": LINEAR, "gradient_accumulation_steps": 4,
        "micro_batch_size": 2, "num_epochs": 1, "learning_rate": 0.0002},
    "llama_qlora_kto": OLD | USUAL | {
        "base_model": "meta-llama/Llama-3.2-1B", "load_in_4bit": True, "rl": "kto", "rl_beta": 0.5,
        "kto_desirable_weight": 0.2,
        "datasets": [{"path": "argilla/ultrafeedback-binarized-preferences-cleaned-kto", "type": "llama3.ultra",
                      "split": "train"}],
        "val_set_size": 0.0, "output_dir": "./outputs/qlora-out", "remove_unused_columns": False, "adapter": "qlora",
        "sequence_len": 2048, "sample_packing": False, "pad_to_sequence_len": False, "lora_r": 32, "lora_alpha": 64,
        "lora_dropout": 0.05, "lora_target_linear": True, "gradient_accumulation_steps": 1, "micro_batch_size": 2,
        "num_epochs": 1, "optimizer": "adamw_8bit", "learning_rate": 0.0002, "tf32": True, "warmup_steps": 20},
    "phi3_full": OLD | USUAL | {
        "base_model": "microsoft/Phi-3-mini-4k-instruct", "model_type": "AutoModelForCausalLM",
        "datasets": [{"path": "aaditya/alpaca_subset_1", "type": "alpaca"}], "val_set_size": 0,
        "output_dir": "./phi-sft-out", "sequence_len": 4000, "sample_packing": True, "pad_to_sequence_len": True,
        "trust_remote_code": True, "adapter": None, "lora_r": None, "wandb_project": "phi3",
        "gradient_accumulation_steps": 2, "micro_batch_size": 12, "num_epochs": 2, "optimizer": "adamw_torch",
        "adam_beta2": 0.95, "adam_epsilon": 0.00001, "max_grad_norm": 1.0, "learning_rate": 0.000003, "tf32": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": True}, "warmup_steps": 100, "weight_decay": 0.1,
        "fsdp": ["full_shard", "auto_wrap"], "fsdp_config": FSDP, "resize_token_embeddings_to_32x": True,
        "special_tokens": {"pad_token": "<|endoftext|>"}},
    "tiny_llama_pretrain": OLD | USUAL | {
        "base_model": "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "model_type": "LlamaForCausalLM",
        "tokenizer_type": "LlamaTokenizer", "is_llama_derived_model": True, "max_steps": 200,
        "pretraining_dataset": {"path": "c4", "name": "en"}, "val_set_size": 0.0, "output_dir": "./model-out",
        "sequence_len": 2048, "sample_packing": True, "gradient_accumulation_steps": 4, "micro_batch_size": 2,
        "num_epochs": 4, "learning_rate": 0.0002, "evals_per_epoch": None},
    "gemma3_qlora": EMPTY | USUAL | {
        "base_model": "google/gemma-3-1b-it", "ddp_find_unused_parameters": True, "load_in_4bit": True,
        "chat_template": "gemma3", "eot_tokens": ["<end_of_turn>"],
        "datasets": [{"path": "cgato/SlimOrcaDedupCleaned", "type": "chat_template", "field_messages": "conversations",
                      "message_property_mappings": {"role": "from", "content": "value"}}],
        "val_set_size": 0.0, "output_dir": "./outputs/out",
        "unfrozen_parameters": ["^model\\.language_model\\..*", "^lm_head\\..*"], "adapter": "qlora", "lora_r": 32,
        "lora_alpha": 16, "lora_dropout": 0, "lora_target_linear": True, "sequence_len": 2048, "sample_packing": True,
        "eval_sample_packing": False, "gradient_accumulation_steps": 4, "micro_batch_size": 1, "num_epochs": 4,
        "learning_rate": 0.0002, "tf32": True, "warmup_steps": None, "warmup_ratio": 0.1, "evals_per_epoch": None},
}

FACTORY = {"model_name_or_path": "meta-llama/Meta-Llama-3-8B-Instruct", "trust_remote_code": True, "do_train": True,
           "template": "llama3", "cutoff_len": 2048, "max_samples": 1000, "overwrite_cache": True,
           "preprocessing_num_workers": 16, "logging_steps": 10, "save_steps": 500, "plot_loss": True,
           "overwrite_output_dir": True, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8,
           "num_train_epochs": 3.0, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1, "ddp_timeout": 180000000}
LLAMA_FACTORY = {
    "lora_sft": FACTORY | {"stage": "sft", "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all",
                           "dataset": "identity,alpaca_en_demo", "output_dir": "saves/llama3-8b/lora/sft",
                           "learning_rate": 1.0e-4, "bf16": True},
    "full_sft": FACTORY | {"stage": "sft", "finetuning_type": "full", "deepspeed": "examples/deepspeed/ds_z3_config.json",
                           "dataset": "identity,alpaca_en_demo", "output_dir": "saves/llama3-8b/full/sft",
                           "gradient_accumulation_steps": 2, "learning_rate": 1.0e-5, "bf16": True},
    "lora_dpo": FACTORY | {"stage": "dpo", "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all",
                           "pref_beta": 0.1, "pref_loss": "sigmoid", "dataset": "dpo_en_demo",
                           "output_dir": "saves/llama3-8b/lora/dpo", "learning_rate": 5.0e-6, "bf16": True},
    "lora_kto": FACTORY | {"stage": "kto", "finetuning_type": "lora", "lora_target": "all", "pref_beta": 0.1,
                           "dataset": "kto_en_demo", "output_dir": "saves/llama3-8b/lora/kto", "learning_rate": 5.0e-6,
                           "bf16": True, "val_size": 0.1, "per_device_eval_batch_size": 1, "eval_strategy": "steps",
                           "eval_steps": 500},
    "lora_reward": FACTORY | {"stage": "rm", "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all",
                              "dataset": "dpo_en_demo", "output_dir": "saves/llama3-8b/lora/reward",
                              "learning_rate": 1.0e-4, "bf16": True},
    "lora_pretrain": FACTORY | {"stage": "pt", "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all",
                                "dataset": "c4_demo", "output_dir": "saves/llama3-8b/lora/pretrain",
                                "learning_rate": 1.0e-4, "bf16": True},
    "qlora_sft": FACTORY | {"stage": "sft", "quantization_bit": 4, "quantization_method": "bitsandbytes",
                            "finetuning_type": "lora", "lora_target": "q_proj,v_proj", "loraplus_lr_ratio": 16.0,
                            "dataset": "identity", "output_dir": "saves/llama3-8b/lora/sft", "learning_rate": 1.0e-4,
                            "fp16": True, "val_size": 0.1, "per_device_eval_batch_size": 1, "eval_strategy": "steps",
                            "eval_steps": 500},
    "pissa_sft": FACTORY | {"stage": "sft", "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all",
                            "pissa_init": True, "pissa_iter": 16, "pissa_convert": True, "dataset": "identity",
                            "dataloader_num_workers": 4, "save_only_model": False, "report_to": "none",
                            "output_dir": "saves/llama3-8b/lora/sft", "learning_rate": 1.0e-4, "bf16": True},
}

TRL = {
    "sft": ("sft.sh", """# Full training
python trl/scripts/sft.py \\
    --model_name_or_path Qwen/Qwen2-0.5B \\
    --dataset_name trl-lib/Capybara \\
    --learning_rate 2.0e-5 --num_train_epochs 1 --packing \\
    --per_device_train_batch_size 2 --gradient_accumulation_steps 8 \\
    --eos_token '<|im_end|>' --eval_strategy steps --eval_steps 100 \\
    --output_dir Qwen2-0.5B-SFT --push_to_hub
"""),
    "sft_lora": ("run.sh", """export WANDB_PROJECT=chat
accelerate launch --config_file fsdp2.yaml trl/scripts/sft.py --model_name_or_path Qwen/Qwen2-0.5B \\
    --dataset_name trl-lib/Capybara --learning_rate 2.0e-4 --num_train_epochs 1 --per_device_train_batch_size 2 \\
    --gradient_accumulation_steps 8 --use_peft --lora_r 32 --lora_alpha 16 --output_dir Qwen2-0.5B-SFT
"""),
    "dpo": ("dpo.sh", """trl dpo --model_name_or_path Qwen/Qwen2-0.5B-Instruct --dataset_name trl-lib/ultrafeedback_binarized \\
    --learning_rate 5.0e-6 --num_train_epochs 1 --per_device_train_batch_size 2 --max_steps 1000 \\
    --gradient_accumulation_steps 8 --gradient_checkpointing --eval_strategy steps --eval_steps 50 \\
    --output_dir Qwen2-0.5B-DPO --no_remove_unused_columns --use_peft --lora_r 32 --lora_alpha 16
"""),
    "sft_yaml": ("sft_config.yaml", """model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: stanfordnlp/imdb
report_to: none
learning_rate: 0.0001
lr_scheduler_type: cosine
dataset_text_field: text
packing: true
max_length: 512
use_peft: true
lora_r: 16
lora_alpha: 32
lora_target_modules: [q_proj, k_proj, v_proj, o_proj]
"""),
}

# Arguments of transformers' Trainer, each with another value than its own default.
ARGUMENTS = {
    "output_dir": "out", "seed": 7, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 2,
    "gradient_accumulation_steps": 2, "num_train_epochs": 2, "learning_rate": 3e-5, "weight_decay": 0.01,
    "adam_beta1": 0.8, "adam_beta2": 0.98, "adam_epsilon": 1e-7, "max_grad_norm": 0.5, "warmup_ratio": 0.1,
    "lr_scheduler_type": "cosine", "optim": "adamw_8bit", "bf16": True, "eval_strategy": "epoch",
    "save_strategy": "epoch", "save_total_limit": 2, "logging_steps": 20, "report_to": ["wandb"],
    "label_smoothing_factor": 0.1, "load_best_model_at_end": True, "metric_for_best_model": "eval_accuracy",
    "greater_is_better": True, "early_stopping_patience": 3, "dataloader_num_workers": 2, "group_by_length": True,
    "gradient_checkpointing": True, "push_to_hub": True, "eval_on_start": True, "torch_compile": True}

# Command lines of transformers' example scripts, and some of the lines of their jobs.
SCRIPTS = {
    "python run_glue.py --model_name_or_path google-bert/bert-base-cased --task_name mrpc --do_train --do_eval "
    "--max_seq_length 128 --per_device_train_batch_size 32 --learning_rate 2e-5 --num_train_epochs 3 --output_dir out/mrpc":
        {"model.type": "bert", "model.config.head": "classifier", "data.text.max_length": 128,
         "data.text.columns.text": "sentence1", "data.text.columns.text_pair": "sentence2",
         "data.val.path": "data/glue/mrpc/validation/*.parquet", "eval.interval": None},
    "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 examples/pytorch/text-classification/run_classification.py "
    "--model_name_or_path distilbert-base-uncased --train_file a.csv --validation_file b.csv --max_seq_length 256 "
    "--label_column_name stars --eval_strategy epoch --metric_for_best_model f1 --early_stopping_patience 2":
        {"model.config.head": "classifier", "data.train.path": "a.csv", "data.val.path": "b.csv", "data.text.columns.label": "stars",
         "eval.interval": "1ep", "checkpoint.metric": "f1", "eval.early_stopping.patience": 2},
    "accelerate launch --num_processes 4 run_clm.py --model_name_or_path openai-community/gpt2 --dataset_name Salesforce/wikitext "
    "--dataset_config_name wikitext-2-raw-v1 --block_size 512 --do_train --do_eval":
        {"model.type": "gpt", "data.text.max_length": 512, "data.text.packing": True,
         "data.val.path": "data/wikitext/wikitext-2-raw-v1/validation/*.parquet"},
    "deepspeed --num_gpus 8 run_clm.py --deepspeed ds_z2.json --model_name_or_path Qwen/Qwen3-0.6B --train_file a.txt "
    "--validation_split_percentage 10":
        {"model.type": "gpt", "parallel.shard": "gradients", "data.train.format": "text", "data.val.split": "10%"},
    "python3 run_mlm.py --model_name_or_path FacebookAI/roberta-base --train_file a.txt --mlm_probability 0.2 --line_by_line False":
        {"model.type": "bert", "model.config.head": "mlm", "data.text.masking.fraction": 0.2},
    "python run_ner.py --model_name_or_path google-bert/bert-base-cased --train_file a.jsonl --validation_file b.jsonl":
        {"model.config.head": "tagger", "data.text.columns.tags": "ner_tags"},
    "accelerate launch run_glue_no_trainer.py --model_name_or_path google-bert/bert-base-cased --task_name sst2 "
    "--num_warmup_steps 100 --max_train_steps 1000 --checkpointing_steps epoch":
        {"model.config.head": "classifier", "train.max_steps": 1000, "lr_scheduler.warmup": 100, "checkpoint.interval": "1ep"},
}

TIMM = {
    "resnet50_rand": ("train.sh", "./distributed_train.sh 2 /imagenet/ --model resnet50 -b 64 --sched cosine --epochs 200 --lr 0.05 "
                      "--amp --remode pixel --reprob 0.6 --aug-splits 3 --aa rand-m9-mstd0.5-inc1 --resplit --split-bn "
                      "--jsd-loss --dist-bn reduce\n"),
    "resnet50_a3": ("a3.yaml", """data_dir: /imagenet
model: resnet50
img_size: 160
crop_pct: 0.95
batch_size: 256
opt: lamb
lr: 8.0e-3
weight_decay: 0.02
sched: cosine
epochs: 100
warmup_epochs: 5
warmup_lr: 1.0e-4
min_lr: 1.0e-6
bce_loss: true
bce_target_thresh: 0.2
smoothing: 0.0
mixup: 0.1
cutmix: 1.0
aa: rand-m6-mstd0.5-inc1
remode: pixel
amp: true
log_wandb: false
"""),
    "mobilenet": ("train.sh", "./distributed_train.sh 2 /imagenet/ --model mobilenetv3_large_100 -b 512 --sched step --epochs 600 "
                  "--decay-epochs 2.4 --decay-rate .973 --opt rmsproptf --opt-eps .001 -j 7 --warmup-lr 1e-6 "
                  "--weight-decay 1e-5 --drop 0.2 --model-ema --model-ema-decay 0.9999 --aa rand-m9-mstd0.5 --remode pixel "
                  "--reprob 0.2 --amp --lr .064 --lr-noise 0.42 0.9\n"),
    "deit_small": ("train.sh", "torchrun --nproc_per_node=8 train.py /imagenet --model vit_small_patch16_224 --batch-size 128 "
                   "--opt adamw --lr 1e-3 --weight-decay 0.05 --sched cosine --epochs 300 --warmup-epochs 5 "
                   "--warmup-lr 1e-6 --min-lr 1e-5 --drop-path 0.1 --mixup 0.8 --cutmix 1.0 --smoothing 0.1 "
                   "--aa rand-m9-mstd0.5-inc1 --reprob 0.25 --color-jitter 0.3 --model-ema --model-ema-decay 0.99996 "
                   "--train-interpolation bicubic --amp --amp-dtype bfloat16\n"),
    "fine_tune": ("train.sh", "python train.py ~/photos --model resnet50.a1_in1k --pretrained --num-classes 12 --epochs 20 "
                  "-b 32 --lr 5e-3 --sched cosine --warmup-epochs 1 --sched-on-updates --checkpoint-hist 3 "
                  "--workers 8 --experiment photos --output out\n"),
    "convnext": ("args.yaml", """data_dir: /data/flowers
model: convnext_tiny
pretrained: false
input_size: [3, 224, 224]
batch_size: 64
opt: adamw
opt_betas: [0.9, 0.98]
lr_base: 0.001
lr_base_size: 512
layer_decay: 0.8
drop_path: 0.2
clip_grad: 1.0
sched: cosine
epochs: 50
cooldown_epochs: 0
warmup_epochs: 2
channels_last: true
grad_checkpointing: true
workers: 4
sync_bn: false
seed: 42
tta: 0
"""),
}
