#include "gputrain/estimate/scaled_activations.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gputrain/core/numbers.hpp"
#include "gputrain/setup/trial_step.hpp"

namespace gputrain::app {
namespace {

constexpr int64_t kMostTokens = 256;   // of a sample of the small decoders: with fewer, attention takes another way
constexpr int64_t kHeadChannels = 32;  // of each head, at least
constexpr int64_t kVocabulary = 64;    // too few for logits to matter
constexpr int64_t kLogits = 4096;      // enough for logits to be most of a decoder of 64 channels

using Settings = std::map<std::string, std::string>;

Settings settings_of(const Job& job) {
  Settings settings;
  for (const config::Setting& setting : job.loaded.settings()) settings[setting.key] = setting.value;
  return settings;
}

/// A number of the model's; 0: null.
int64_t number(const Settings& settings, const std::string& name) {
  const auto found = settings.find("model.config." + name);
  return found == settings.end() || found->second == "null" ? 0 : std::stoll(found->second);
}

/// Layers after which kinds of layers repeat.
int64_t period_of(const Settings& settings) {
  int64_t period = 1;
  for (const char* key : {"model.config.layer_types", "model.config.mlp_layer_types"}) {
    const auto found = settings.find(key);
    if (found == settings.end()) continue;
    period = std::max<int64_t>(period, std::ranges::count(found->second, ',') + 1);
  }
  return period;
}

struct SmallDecoder {
  int64_t layers = 1, heads = 1, key_heads = 1, head_channels = kHeadChannels;
  int64_t channels = 0, inner = 0, expert_inner = 0, vocabulary = 0, tokens = 0;
  bool has_experts = true;
};

/// The sizes of the job's model as null options stand for them.
struct Sizes {
  int64_t layers, heads, key_heads, channels, head_channels, inner;
};

Sizes sizes_of(const Settings& settings) {
  Sizes sizes{.layers = number(settings, "n_layer"),
              .heads = number(settings, "n_head"),
              .key_heads = number(settings, "n_kv_head"),
              .channels = number(settings, "n_embd"),
              .head_channels = number(settings, "head_dim"),
              .inner = number(settings, "n_inner")};
  if (sizes.key_heads == 0) sizes.key_heads = sizes.heads;
  if (sizes.head_channels == 0) sizes.head_channels = sizes.channels / sizes.heads;
  if (sizes.inner == 0) {  // as GptSpec's help says
    const bool is_gated = settings.at("model.config.activation").find("glu") != std::string::npos;
    sizes.inner = is_gated ? ceil_divide(8 * sizes.channels / 3, 64) * 64 : 4 * sizes.channels;
  }
  return sizes;
}

/// The largest power of two that divides all of these, and is at most `most`.
int64_t common_power(std::vector<int64_t> numbers, int64_t most) {
  int64_t power = 1;
  while (power * 2 <= most && std::ranges::all_of(numbers, [&](int64_t one) { return one % (power * 2) == 0; }))
    power *= 2;
  return power;
}

/// The job with another decoder, on made-up tokens.
Job job_with(const Settings& settings, const SmallDecoder& small, const std::string& checkpointing, int64_t tokens,
             int64_t period) {
  std::vector<std::string> set;
  for (const auto& [key, value] : settings) {
    if (key == "model.type" || key.starts_with("model.config.") || key == "precision" || key == "seed")
      set.push_back(key + "=" + value);
  }
  const auto say = [&](const std::string& key, int64_t value) { set.push_back(key + "=" + std::to_string(value)); };
  say("model.config.n_layer", small.layers * period);
  say("model.config.n_head", small.heads);
  say("model.config.n_kv_head", small.key_heads);
  say("model.config.head_dim", small.head_channels);
  say("model.config.n_embd", small.channels);
  say("model.config.n_inner", small.inner);
  if (small.expert_inner > 0) say("model.config.expert_inner", small.expert_inner);
  say("model.config.vocab_size", small.vocabulary);
  say("model.config.pad_vocab_to", 0);
  say("model.config.block_size", small.tokens);
  if (const int64_t window = number(settings, "window"); window > 0)
    say("model.config.window", std::max<int64_t>(1, std::min(small.tokens, window * small.tokens / tokens)));
  if (!small.has_experts) set.insert(set.end(), {"model.config.n_expert=0", "model.config.mlp_layer_types=[]"});
  set.insert(set.end(), {"device=cpu", "data.train.format=synthetic", "train.max_steps=1", "train.global_batch_size=1",
                         "train.activation_checkpointing=" + checkpointing});
  say("data.train.vocab_size", small.vocabulary);
  return load_job({.file = {}, .set = set, .output_dir = {}});
}

/// Bytes of one more sample.
double bytes_per_sample(const Job& job) {
  constexpr int64_t kFew = 2, kMore = 4;  // with fewer, gradients of weights would be more than activations
  TrainingSetup setup(job, simulate_rank(job, {}, std::make_shared<comm::CollectiveTraffic>()),
                      [&] { return open_datasets(job); });
  const int64_t few = take_trial_step(job, setup, kFew).peak_bytes;
  return static_cast<double>(take_trial_step(job, setup, kMore).peak_bytes - few) / (kMore - kFew);
}

}  // namespace

int64_t BlockActivations::bytes(int64_t samples) const noexcept {
  const auto count = static_cast<double>(samples);
  const double head = count * in_head + std::min(count * logits, most_logits);
  return static_cast<int64_t>(static_cast<double>(blocks) * per_block * count + std::max(count * in_block, head));
}

bool can_scale(const Job& job) {
  const JobSpec& spec = job.spec();
  return spec.model.architecture.name == "gpt" && !spec.model.adapter && spec.model.freeze.empty();
}

BlockActivations scaled_activations(const Job& job, const std::string& checkpointing, const TextFacts& texts) {
  const Settings settings = settings_of(job);
  const int64_t tokens = texts.tokens;
  const Sizes sizes = sizes_of(settings);
  const int64_t period = period_of(settings), expert_inner = number(settings, "expert_inner");
  const int64_t of_heads = common_power({sizes.heads, sizes.key_heads}, sizes.heads);
  const int64_t of_channels =
      common_power({sizes.head_channels}, std::max<int64_t>(1, sizes.head_channels / kHeadChannels));
  std::vector<int64_t> divided{sizes.channels, sizes.inner};
  if (expert_inner > 0) divided.push_back(expert_inner);
  constexpr int64_t kLeast = 128;  // channels
  const int64_t divisor =
      common_power(divided, std::min(of_heads * of_channels, std::max<int64_t>(1, sizes.channels / kLeast)));
  const int64_t heads_by = std::min(of_heads, divisor);
  SmallDecoder small{.heads = sizes.heads / heads_by,
                     .key_heads = sizes.key_heads / heads_by,
                     .head_channels = sizes.head_channels * heads_by / divisor,
                     .channels = sizes.channels / divisor,
                     .inner = sizes.inner / divisor,
                     .expert_inner = expert_inner / divisor,
                     .vocabulary = kVocabulary,
                     .tokens = std::min(tokens, kMostTokens)};
  const auto measured = [&](const SmallDecoder& decoder) {
    return bytes_per_sample(job_with(settings, decoder, checkpointing, tokens, period));
  };
  const double times = static_cast<double>(tokens) / static_cast<double>(small.tokens),
               by = times * static_cast<double>(divisor);
  const double one = measured(small);
  small.layers = 2;
  const double two = measured(small);
  BlockActivations found{.per_block = by * (two - one) / static_cast<double>(period),
                         .in_block = by * (2 * one - two),
                         .blocks = sizes.layers,
                         .divisor = divisor};
  if (settings.at("model.config.head") != "tokens") return found;

  SmallDecoder head{.heads = 2,
                    .key_heads = 2,
                    .channels = 64,
                    .inner = 64,
                    .vocabulary = kLogits,
                    .tokens = small.tokens,
                    .has_experts = false};
  const double with_logits = measured(head);
  head.layers = 2;
  const double kept = measured(head) - with_logits;
  head.layers = 1;
  head.vocabulary = 2 * kLogits;
  const double of_logits = (measured(head) - with_logits) / static_cast<double>(kLogits * small.tokens);
  const auto columns = static_cast<double>(
      std::max({texts.vocabulary, number(settings, "vocab_size"), number(settings, "pad_vocab_to")}));
  const auto element =
      static_cast<double>(at::elementSize(ops::policy_of(ops::precision_from_name(job.spec().precision)).compute));
  found.in_head = std::max(0.0, with_logits - kept - of_logits * static_cast<double>(kLogits * small.tokens)) * times *
                  static_cast<double>(sizes.channels) / static_cast<double>(head.channels);
  found.logits = of_logits * columns * static_cast<double>(tokens);
  found.most_logits = of_logits * static_cast<double>(nn::Context().logits_bytes) / element;
  return found;
}

}  // namespace gputrain::app
