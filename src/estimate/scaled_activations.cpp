#include "gputrain/estimate/scaled_activations.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gputrain/core/numbers.hpp"
#include "gputrain/setup/trial_step.hpp"

namespace gputrain::app {
namespace {

constexpr int64_t kMostTokens = 256;   // limit for texts of small decoders; attention to fewer tokens differs
constexpr int64_t kHeadChannels = 32;  // least number in each head
constexpr int64_t kVocabulary = 64;    // too few for logits to matter
constexpr int64_t kLogits = 4096;      // enough for logits to be most of a decoder of 64 channels

using Settings = std::map<std::string, std::string>;

Settings settings_of(const Job& job) {
  Settings settings;
  for (const config::Setting& setting : job.loaded.settings()) settings[setting.key] = setting.value;
  return settings;
}

/// Reads a number of the model; 0: null.
int64_t number(const Settings& settings, const std::string& name) {
  const auto found = settings.find("model.config." + name);
  return found == settings.end() || found->second == "null" ? 0 : std::stoll(found->second);
}

/// Returns the rank of an adapter that has one.
int64_t rank_of(const Settings& settings) {
  constexpr int64_t kDefault = 8;
  const auto found = settings.find("model.adapter.rank");
  return found == settings.end() || found->second == "null" ? kDefault : std::stoll(found->second);
}

/// Returns the number of layers after which kinds of layers repeat.
int64_t period_of(const Settings& settings) {
  int64_t period = 1;
  for (const char* key : {"model.config.layer_types", "model.config.mlp_layer_types"}) {
    const auto found = settings.find(key);
    if (found == settings.end()) continue;
    period = std::max<int64_t>(period, std::ranges::count(found->second, ',') + 1);
  }
  return period;
}

/// Returns whether a setting also holds for a small decoder of the same kind.
bool is_of_kind(const std::string& key) {
  for (const char* other : {"model.adapter.pretrained", "model.adapter.merge"})
    if (key == other) return false;
  for (const char* section : {"model.config.", "model.adapter.", "model.quantize."})
    if (key.starts_with(section)) return true;
  for (const char* one : {"model.type", "precision", "seed", "optimizer.type", "optimizer.master"})
    if (key == one) return true;
  return false;
}

struct SmallDecoder {
  int64_t layers = 1, heads = 1, key_heads = 1, head_channels = kHeadChannels;
  int64_t channels = 0, inner = 0, expert_inner = 0, vocabulary = 0, tokens = 0;
  int64_t rank = 1;  // of an adapter
  bool has_experts = true;
  SampleRanks ranks = {};  // simulated ranks

  int64_t world_size() const noexcept { return ranks.tensor * ranks.context; }
};

DecoderSizes sizes_of(const Settings& settings) {
  DecoderSizes sizes{.layers = number(settings, "n_layer"),
                     .heads = number(settings, "n_head"),
                     .key_heads = number(settings, "n_kv_head"),
                     .channels = number(settings, "n_embd"),
                     .head_channels = number(settings, "head_dim"),
                     .inner = number(settings, "n_inner")};
  if (sizes.key_heads == 0) sizes.key_heads = sizes.heads;
  if (sizes.head_channels == 0) sizes.head_channels = sizes.channels / sizes.heads;
  if (sizes.inner == 0) {  // rule of GptSpec
    const bool is_gated = settings.at("model.config.activation").find("glu") != std::string::npos;
    sizes.inner = is_gated ? ceil_divide(8 * sizes.channels / 3, 64) * 64 : 4 * sizes.channels;
  }
  return sizes;
}

/// Returns the largest power of two that divides all of these, and is at most `most`.
int64_t common_power(std::vector<int64_t> numbers, int64_t most) {
  int64_t power = 1;
  while (power * 2 <= most && std::ranges::all_of(numbers, [&](int64_t one) { return one % (power * 2) == 0; }))
    power *= 2;
  return power;
}

/// Returns the job with another decoder, on made-up tokens.
Job job_with(const Settings& settings, const SmallDecoder& small, const std::string& checkpointing, int64_t tokens,
             int64_t period) {
  std::vector<std::string> set;
  for (const auto& [key, value] : settings)
    if (is_of_kind(key)) set.push_back(key + "=" + value);
  const auto say = [&](const std::string& key, int64_t value) { set.push_back(key + "=" + std::to_string(value)); };
  say("model.config.n_layer", small.layers * period);
  say("model.config.n_head", small.heads);
  say("model.config.n_kv_head", small.key_heads);
  say("model.config.head_dim", small.head_channels);
  say("model.config.n_embd", small.channels);
  say("model.config.n_inner", small.inner);
  if (small.expert_inner > 0) say("model.config.expert_inner", small.expert_inner);
  if (settings.contains("model.adapter.rank")) {
    say("model.adapter.rank", small.rank);
    // Groups may name layers that the small decoder has not, and its weights may be too small to start from.
    set.insert(set.end(), {"model.adapter.groups=[]", "model.adapter.init=kaiming"});
  }
  say("model.config.vocab_size", small.vocabulary);
  say("model.config.pad_vocab_to", 0);
  say("model.config.block_size", small.tokens);
  if (const int64_t window = number(settings, "window"); window > 0)
    say("model.config.window", std::max<int64_t>(1, std::min(small.tokens, window * small.tokens / tokens)));
  if (!small.has_experts) set.insert(set.end(), {"model.config.n_expert=0", "model.config.mlp_layer_types=[]"});
  set.insert(set.end(), {"device=cpu", "data.train.format=synthetic", "train.max_steps=1", "train.global_batch_size=1",
                         "train.activation_checkpointing=" + checkpointing});
  say("data.train.vocab_size", small.vocabulary);
  say("parallel.tensor", small.ranks.tensor);
  say("parallel.context", small.ranks.context);
  return load_job({.file = {}, .set = set, .output_dir = {}});
}

/// A line through the peaks of two numbers of samples.
struct PeakLine {
  double per_sample = 0, without_samples = 0;
};

/// Measures it on the first of so many ranks, with `few` samples and twice as many.
PeakLine peak_line(const Job& job, int64_t ranks, int64_t few) {
  const comm::Rendezvous first{.world_size = static_cast<int>(ranks), .local_world_size = static_cast<int>(ranks)};
  TrainingSetup setup(
      job, simulate_rank(job, first, std::make_shared<comm::CollectiveTraffic>()), [&] { return open_datasets(job); },
      /*kept_global_batch=*/0, Weights::made_up);
  const auto peak = static_cast<double>(take_trial_step(job, setup, few).peak_bytes);
  const double more = static_cast<double>(take_trial_step(job, setup, 2 * few).peak_bytes) - peak;
  return {.per_sample = more / static_cast<double>(few), .without_samples = peak - more};
}

/// Measures the bytes of one more sample, with so many that gradients of weights are less than activations.
double bytes_per_sample(const Job& job, const SmallDecoder& small) {
  const int64_t few = small.tokens / small.ranks.context < 2 * kMostTokens ? 2 : 1;
  return peak_line(job, small.world_size(), few).per_sample;
}

constexpr int64_t kFewRanks = 2;  // ranks that share a small decoder

/// Derives the part of `all` that ranks of shared layers split, from the bytes of each of a few ranks.
void take_layers(SharedBytes& all, double of_a_rank) {
  const double shared = (all.of_positions - of_a_rank) * kFewRanks / (kFewRanks - 1);
  all.of_layers = std::clamp(shared, 0.0, all.of_positions);
  all.of_positions -= all.of_layers;
}

/// Derives what ranks of a context gather, from the bytes of each of a few ranks.
void take_keys(SharedBytes& all, double of_a_rank) {
  all.of_keys = std::max(0.0, of_a_rank - (all.of_positions + all.of_layers) / kFewRanks);
}

/// Returns the columns of the head.
int64_t columns_of(const Settings& settings, const TextFacts& texts) {
  return std::max({texts.vocabulary, number(settings, "vocab_size"), number(settings, "pad_vocab_to")});
}

/// Sizes of the head whose activations are wanted.
struct HeadFacts {
  int64_t tokens, measured_tokens, channels, columns, element_bytes;
};

/// Adds what the head keeps; its logits grow with its columns. `measured` gives the bytes of a small decoder.
void add_head(const HeadFacts& head, const std::function<double(const SmallDecoder&)>& measured,
              BlockActivations& found) {
  const double times = static_cast<double>(head.tokens) / static_cast<double>(head.measured_tokens);
  SmallDecoder decoder{.heads = 2,
                       .key_heads = 2,
                       .channels = 64,
                       .inner = 64,
                       .vocabulary = kLogits,
                       .tokens = head.measured_tokens,
                       .has_experts = false};
  const double with_logits = measured(decoder);
  decoder.layers = 2;
  const double kept = measured(decoder) - with_logits;
  decoder.layers = 1;
  decoder.vocabulary = 2 * kLogits;
  const double of_logits = (measured(decoder) - with_logits) / static_cast<double>(kLogits * head.measured_tokens);
  found.in_head = std::max(0.0, with_logits - kept - of_logits * static_cast<double>(kLogits * head.measured_tokens)) *
                  times * static_cast<double>(head.channels) / static_cast<double>(decoder.channels);
  found.logits = of_logits * static_cast<double>(head.columns) * static_cast<double>(head.tokens);
  found.most_logits =
      of_logits * static_cast<double>(nn::Context().logits_bytes) / static_cast<double>(head.element_bytes);
}

}  // namespace

double SharedBytes::on(const SampleRanks& ranks) const noexcept {
  const auto tensor = static_cast<double>(ranks.tensor), context = static_cast<double>(ranks.context);
  const double gathered = ranks.context > 1 ? of_keys / tensor : 0;
  return of_positions / context + of_layers / (tensor * context) + gathered;
}

int64_t BlockActivations::bytes(int64_t samples, int64_t held_blocks, bool has_head,
                                const SampleRanks& ranks) const noexcept {
  const auto count = static_cast<double>(samples), context = static_cast<double>(ranks.context),
             parts = static_cast<double>(ranks.tensor * ranks.context);
  const auto tensor = static_cast<double>(ranks.tensor);
  const double head = count * in_head / context + std::min(count * logits / parts, most_logits);
  const double block = count * in_block.on(ranks) + matrices.of_block / tensor;
  const double held = static_cast<double>(held_blocks) * per_block.on(ranks) * count;
  return static_cast<int64_t>(std::max(held + (has_head ? std::max(block, head) : block), matrices.of_table / tensor));
}

DecoderSizes decoder_sizes(const Job& job) { return sizes_of(settings_of(job)); }

bool can_scale(const Job& job) {
  const JobSpec& spec = job.spec();
  return spec.model.architecture.name == "gpt" && spec.model.freeze.empty();
}

BlockActivations scaled_activations(const Job& job, const std::string& checkpointing, const TextFacts& texts,
                                    const SampleRanks& among) {
  const Settings settings = settings_of(job);
  const int64_t tokens = texts.tokens;
  const DecoderSizes sizes = sizes_of(settings);
  const int64_t period = period_of(settings), expert_inner = number(settings, "expert_inner");
  // Two heads are left for two ranks.
  const int64_t all_heads = common_power({sizes.heads, sizes.key_heads}, sizes.heads);
  const int64_t of_heads = among.tensor > 1 ? std::max<int64_t>(1, all_heads / kFewRanks) : all_heads;
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
                     .tokens = std::min(tokens, kMostTokens),
                     .rank = ceil_divide(rank_of(settings), divisor)};
  const auto measured = [&](const SmallDecoder& decoder) {
    return bytes_per_sample(job_with(settings, decoder, checkpointing, tokens, period), decoder);
  };
  // Beside an adapter the first block is another one: its input is that of a frozen embedding, and has no gradient.
  const int64_t few = job.spec().model.adapter ? 2 : 1;
  /// Returns the bytes of a block, and the rest, scaled to the large decoder.
  const auto blocks_of = [&](const SampleRanks& ranks) {
    SmallDecoder less = small, more;
    less.layers = few;
    less.ranks = ranks;
    less.tokens = std::min(tokens, kMostTokens * (ranks.context > 1 ? 2 * ranks.context : 1));
    more = less;
    ++more.layers;
    const double by = static_cast<double>(tokens) / static_cast<double>(less.tokens) * static_cast<double>(divisor);
    const double of_less = measured(less), of_block = measured(more) - of_less;
    return std::pair(by * of_block / static_cast<double>(period), by * (of_less - static_cast<double>(few) * of_block));
  };
  const auto [per_block, in_block] = blocks_of({});
  BlockActivations found{.per_block = {per_block}, .in_block = {in_block}, .blocks = sizes.layers, .divisor = divisor};
  if (among.tensor > 1) {
    const auto [kept, beside] = blocks_of({.tensor = kFewRanks});
    take_layers(found.per_block, kept);
    take_layers(found.in_block, beside);
  }
  if (among.context > 1) {
    const auto [kept, beside] = blocks_of({.context = kFewRanks});
    take_keys(found.per_block, kept);
    take_keys(found.in_block, beside);
  }
  if (settings.at("model.config.head") != "tokens") return found;

  const auto compute = ops::policy_of(ops::precision_from_name(job.spec().precision)).compute;
  add_head({.tokens = tokens,
            .measured_tokens = small.tokens,
            .channels = sizes.channels,
            .columns = columns_of(settings, texts),
            .element_bytes = static_cast<int64_t>(at::elementSize(compute))},
           measured, found);
  return found;
}

/// Takes steps with so few tokens that the matrices are most of the peak.
MatrixBytes scaled_matrices(const Job& job, const TextFacts& texts) {
  constexpr int64_t kTokens = 4, kInner = 512, kColumns = 8192, kChannels = 128;
  const Settings settings = settings_of(job);
  const DecoderSizes sizes = sizes_of(settings);
  const int64_t period = period_of(settings);
  SmallDecoder decoder{.heads = 2,
                       .key_heads = 2,
                       .channels = kChannels,
                       .inner = kInner,
                       .vocabulary = kVocabulary,
                       .tokens = kTokens,
                       .has_experts = false};
  const auto bytes = [&](const SmallDecoder& one) {
    return peak_line(job_with(settings, one, "none", kTokens, period), 1, 1).without_samples;
  };
  /// Returns the bytes of an element of the matrix that grows with `size`.
  const auto of_element = [&](int64_t SmallDecoder::*size) {
    const double before = bytes(decoder);
    SmallDecoder larger = decoder;
    larger.*size *= 2;
    return std::max(0.0, bytes(larger) - before) / static_cast<double>(decoder.*size * kChannels);
  };
  const auto channels = static_cast<double>(sizes.channels);
  MatrixBytes found;
  found.of_block = of_element(&SmallDecoder::inner) * channels *
                   static_cast<double>(std::max(sizes.inner, sizes.heads * sizes.head_channels));
  decoder.inner = kChannels;
  decoder.vocabulary = kColumns;
  found.of_table = of_element(&SmallDecoder::vocabulary) * channels * static_cast<double>(columns_of(settings, texts));
  return found;
}

}  // namespace gputrain::app
