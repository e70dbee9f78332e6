#include "kernel_autotuner.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/log.hpp"

namespace gputrain::ops {
namespace {

/// Relative error that rounding in this type allows. compare() also allows twice ATen's error.
double tolerance_of(at::ScalarType type) { return type == at::kFloat || type == at::kDouble ? 2e-5 : 6e-3; }

std::string key_of(std::string_view name, const Tensors& inputs) {
  std::string key(name);
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) {
      key += " -";
      continue;
    }
    key += fmt::format(" {} {}", c10::toString(input.scalar_type()), fmt::join(input.sizes(), "x"));
    if (!input.is_contiguous()) key += fmt::format("/{}", fmt::join(input.strides(), "x"));
  }
  return key;
}

/// The inputs; if an input or a result has more than `most` elements, only part of the batched inputs' first dim.
Tensors parts_of(const Tensors& inputs, const KernelAutotuner::Inputs& kinds, int64_t most) {
  Tensors parts = inputs;
  const int64_t elements = inputs[0].numel() * kinds.growth;
  for (size_t i = 0; i < kinds.batched && elements > most; ++i) {
    if (!parts[i].defined() || parts[i].dim() == 0) continue;
    const int64_t per_row = elements / inputs[0].size(0);
    parts[i] = parts[i].narrow(0, 0, std::clamp<int64_t>(most / per_row, 1, parts[i].size(0)));
  }
  return parts;
}

/// Leaves with the inputs' values, in fp32 if `wider`.
Tensors leaves_of(const Tensors& inputs, const KernelAutotuner::Inputs& kinds, bool wider) {
  Tensors leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      leaves.emplace_back();
      continue;
    }
    const at::Tensor input = inputs[i].detach();
    const bool is_float = at::isFloatingType(input.scalar_type());
    // Dense strides are kept; a view gets the strides of a new tensor, as in a clone.
    at::Tensor leaf = wider && is_float ? input.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true) : input.clone();
    // Infinities, as in first steps in fp16, would make all results NaN and both ways wrong.
    if (is_float) at::nan_to_num_(leaf, 0.0, 0.0, 0.0);
    leaves.push_back(leaf.set_requires_grad(i < kinds.differentiable));
  }
  return leaves;
}

/// Results, and gradients of the leaves that require one; both ways get the same gradients of the results.
Tensors results_of(const OpImpl& impl, const Tensors& leaves, const Tensors& gradients) {
  Tensors handed;  // a way may overwrite its inputs but not a leaf: pass a view
  for (const at::Tensor& leaf : leaves) {
    const bool is_leaf = leaf.defined() && leaf.requires_grad();
    if (is_leaf) leaf.mutable_grad() = at::Tensor();
    handed.push_back(is_leaf ? leaf.view_as(leaf) : leaf);
  }
  const Tensors outputs = impl(handed);
  Tensors results, roots, root_gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(outputs[i].detach());
    if (!outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    root_gradients.push_back(gradients[i].to(outputs[i].scalar_type()));
  }
  if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
  for (const at::Tensor& leaf : leaves) {
    if (leaf.defined() && leaf.requires_grad() && leaf.grad().defined()) results.push_back(leaf.grad().clone());
  }
  return results;
}

/// Values of changing sign and size. No random numbers: drawing them would change the run's own.
at::Tensor gradient_for(const at::Tensor& y) {
  if (y.dim() == 0) return at::ones_like(y);
  const at::Tensor angles = at::arange(1, y.numel() + 1, y.options().dtype(at::kFloat)).mul_(1.7);
  return at::zeros_like(y).copy_(angles.sin_().view(y.sizes()));
}

double error_of(const at::Tensor& result, const at::Tensor& exact) {
  const auto norm = [](const at::Tensor& x) { return at::linalg_vector_norm(x.to(at::kDouble)).item<double>(); };
  const double length = norm(exact), difference = norm(at::sub(result.to(at::kDouble), exact.to(at::kDouble)));
  return difference == 0 ? 0 : difference / length;
}

/// Disables cuDNN's search for algorithms: it does not pay for a single run.
class WithoutCudnnSearch {
 public:
  WithoutCudnnSearch() { at::globalContext().setBenchmarkCuDNN(false); }
  WithoutCudnnSearch(const WithoutCudnnSearch&) = delete;
  WithoutCudnnSearch& operator=(const WithoutCudnnSearch&) = delete;
  ~WithoutCudnnSearch() { at::globalContext().setBenchmarkCuDNN(before_); }

 private:
  bool before_ = at::globalContext().benchmarkCuDNN();
};

Tensors exact_results(const OpImpl& reference, const Tensors& wide, const Tensors& gradients) {
  const WithoutCudnnSearch once;
  return results_of(reference, wide, gradients);
}

}  // namespace

KernelAutotuner::KernelAutotuner(Options options)
    : options_(std::move(options)), trials_(options_.file.empty() ? "" : options_.file.string() + ".trials") {
  if (!options_.time_counts) options_.machine += ", without a clock";  // do not mix with timed choices
  trials_.take_interrupted([&](const std::vector<std::string>& marks) {
    for (const std::string& mark : marks) {
      auto entry = nlohmann::json::parse(mark, nullptr, /*allow_exceptions=*/false);
      if (entry.is_object()) append(options_.file, std::move(entry));
    }
  });
  read_file(options_.file, /*is_kept=*/false);
}

template <class Value>
std::optional<Value> KernelAutotuner::known(Answers<Value>& answers, const char* kind, const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = answers.find(key);
  if (found == answers.end()) return std::nullopt;
  found->second.is_used = true;
  keep(kind, key, found->second);
  return found->second.value;
}

/// Writes an answer to the run's folder once, if it is known. Call under the lock.
template <class Value>
void KernelAutotuner::keep(const char* kind, const std::string& key, Answer<Value>& answer) const {
  if (kept_file_.empty() || std::exchange(answer.is_kept, true)) return;
  append(kept_file_, {{"operator", key}, {kind, answer.value}, {"machine", options_.machine}});
}

std::shared_ptr<void> KernelAutotuner::begin_trial(const std::string& key) {
  constexpr int kMostCrashes = 2;  // one may have had another reason: a killed process looks the same
  {
    const std::lock_guard lock(mutex_);
    const auto crashes = crashes_.find(key);
    if (crashes != crashes_.end() && crashes->second >= kMostCrashes) {
      throw NoKernel(
          fmt::format("earlier processes ended while they tried it; delete {} to try again", options_.file.string()));
    }
  }
  const nlohmann::json mark{{"operator", key}, {"crashed", true}, {"machine", options_.machine}};
  return trials_.begin(key, mark.dump());
}

void KernelAutotuner::keep_in(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "kernel_choices.jsonl";
  read_file(file, /*is_kept=*/true);
  const std::lock_guard lock(mutex_);
  kept_file_ = file;
  for (auto& [key, answer] : fastest_) {  // callers may ask only once
    if (answer.is_used) keep("choice", key, answer);
  }
}

void KernelAutotuner::begin_rough_choices() {
  const std::lock_guard lock(mutex_);
  before_rough_ = uses_custom_;
}

void KernelAutotuner::end_rough_choices() {
  const std::lock_guard lock(mutex_);
  uses_custom_ = std::move(*before_rough_);
  before_rough_.reset();
}

bool KernelAutotuner::chooses_roughly() const {
  const std::lock_guard lock(mutex_);
  return before_rough_.has_value();
}

std::filesystem::path KernelAutotuner::kept_in() const {
  const std::lock_guard lock(mutex_);
  return kept_file_.parent_path();
}

bool KernelAutotuner::use_custom_kernel(std::string_view name, const Tensors& inputs, const Inputs& kinds,
                                        const OpImpl& custom, const OpImpl& reference) {
  if (options_.mode == Mode::never) return false;
  const std::string key = key_of(name, inputs);
  if (const auto answer = known(uses_custom_, "own", key)) return *answer;
  if (!options_.can_measure()) return false;
  Verdict verdict;
  const auto aside = options_.aside ? options_.aside() : nullptr;
  try {
    // All ranks must find the same where they need the same bits, so crashes, which one host remembers, do not count.
    const auto trial = kinds.replicated ? nullptr : begin_trial(key);
    verdict = compare_what_fits(inputs, kinds, custom, reference);
  } catch (const NoKernelYet&) {
    return settled(key, {false});
  } catch (const c10::OutOfMemoryError&) {
    log::warning(key + ": too little memory to try our kernel, using ATen");
    return settled(key, not_kept());
  } catch (const std::exception& error) {
    const std::string_view what = error.what();  // ATen's messages end with stack frames
    log::warning(fmt::format("{}: our kernel failed, using ATen: {}", key, what.substr(0, what.find('\n'))));
    return settled(key, not_kept());
  }
  log::info(fmt::format("kernels {}: own {:.3f} ms, aten {:.3f} ms, error {:.1e}: {}", key, verdict.custom_ms,
                        verdict.reference_ms, verdict.apart, verdict.custom ? "own" : "aten"));
  if (chooses_roughly()) return settled(key, {verdict.custom});
  const bool is_kept = remember({{"operator", key},
                                 {"own", verdict.custom},
                                 {"own_ms", verdict.custom_ms},
                                 {"aten_ms", verdict.reference_ms},
                                 {"error", verdict.apart}});
  return settled(key, {verdict.custom, is_kept});
}

void KernelAutotuner::give_up(std::string_view name, const Tensors& inputs, std::string_view reason) {
  const std::string key = key_of(name, inputs);
  if (!chooses_roughly()) log::warning(fmt::format("{}: no kernel for it, using ATen: {}", key, reason));
  const std::lock_guard lock(mutex_);
  uses_custom_[key] = not_kept();
}

// If two threads compared at once, the first answer counts.
bool KernelAutotuner::settled(const std::string& key, Answer<bool> answer) {
  const std::lock_guard lock(mutex_);
  return uses_custom_.emplace(key, answer).first->second.value;
}

std::optional<size_t> KernelAutotuner::fastest(const std::string& name, size_t ways,
                                               const std::function<void(size_t)>& attempt) {
  if (!options_.time_counts || ways < 2) return 0;
  if (const auto answer = known(fastest_, "choice", name); answer && *answer < ways) return answer;
  if (!options_.can_measure()) return std::nullopt;
  const auto aside = options_.aside ? options_.aside() : nullptr;
  const auto trial = begin_trial(name);
  const std::vector<double> times = times_of(ways, attempt);
  const auto best = std::min_element(times.begin(), times.end());
  const auto choice = static_cast<size_t>(best - times.begin());
  log::info(fmt::format("{}: {} of {}, {:.3f} ms instead of {:.3f}", name, choice + 1, ways, *best, times[0]));
  const bool is_kept = remember({{"operator", name}, {"choice", choice}, {"ways", ways}, {"own_ms", *best}});
  const std::lock_guard lock(mutex_);
  fastest_[name] = {choice, is_kept, /*is_used=*/true};
  return choice;
}

/// Best time of each way, in turns; infinite if the way throws. A way that is clearly slower than the best is tried no
/// further.
std::vector<double> KernelAutotuner::times_of(size_t ways, const std::function<void(size_t)>& attempt) const {
  constexpr int kTurns = 3;
  constexpr double kEnoughMs = 2, kMostRepeats = 4;  // one attempt may be too short to time
  constexpr double kClearlySlower = 1.25;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> times(ways, kNever);
  std::vector<char> is_tried(ways, 1);
  const auto time = [&](size_t way, int repeats) {
    try {
      const double took = options_.milliseconds([&] {
        for (int repeat = 0; repeat < repeats; ++repeat) attempt(way);
      });
      times[way] = std::min(times[way], took / repeats);
    } catch (const std::exception&) {
      is_tried[way] = 0;
      times[way] = kNever;
    }
  };
  for (size_t way = 0; way < ways; ++way) time(way, 1);  // loads the kernels: takes longer than the work
  const std::vector<double> loading = std::exchange(times, std::vector<double>(ways, kNever));
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t way = 0; way < ways; ++way) {
      const double once = turn == 0 ? loading[way] : times[way];
      if (is_tried[way] != 0) time(way, static_cast<int>(std::clamp(std::ceil(kEnoughMs / once), 1.0, kMostRepeats)));
    }
    const double best = *std::min_element(times.begin(), times.end());
    for (size_t way = 0; way < ways; ++way) {
      if (times[way] > kClearlySlower * best) is_tried[way] = 0;
    }
  }
  return times;
}

/// A comparison needs extra memory. If a large batch leaves too little, retry with fewer elements.
KernelAutotuner::Verdict KernelAutotuner::compare_what_fits(const Tensors& inputs, const Inputs& kinds,
                                                            const OpImpl& custom, const OpImpl& reference) const {
  for (int64_t most = kinds.whole ? std::numeric_limits<int64_t>::max() : kMostElements;;) {
    try {
      return compare(parts_of(inputs, kinds, most), kinds, custom, reference);
    } catch (const c10::OutOfMemoryError&) {
      if (most < kMostElements / 64) throw;
      most = std::min(most / 8, kMostElements);
    }
  }
}

KernelAutotuner::Verdict KernelAutotuner::compare(const Tensors& inputs, const Inputs& kinds, const OpImpl& custom,
                                                  const OpImpl& reference) const {
  const at::AutoGradMode grad(kinds.differentiable > 0);
  const Tensors wide = leaves_of(inputs, kinds, /*wider=*/true);
  Tensors gradients;
  if (kinds.differentiable > 0) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& y : reference(leaves_of(inputs, kinds, false))) {
      gradients.push_back(gradient_for(y));
    }
  }
  const Tensors exact = exact_results(reference, wide, gradients);
  const Tensors ours = results_of(custom, leaves_of(inputs, kinds, false), gradients);
  const Tensors theirs = results_of(reference, leaves_of(inputs, kinds, false), gradients);
  Verdict verdict{.custom = ours.size() == exact.size()};
  for (size_t i = 0; verdict.custom && i < exact.size(); ++i) {
    const double error = error_of(ours[i], exact[i]);
    verdict.apart = std::max(verdict.apart, error);
    const double allowed = std::max(tolerance_of(inputs[0].scalar_type()), 2 * error_of(theirs[i], exact[i]));
    verdict.custom = verdict.custom && error <= allowed;  // false for a NaN
  }
  if (!verdict.custom) return verdict;
  const Tensors leaves = leaves_of(inputs, kinds, false);
  // In turns, the best time of each: a change of clock speed affects both.
  verdict.custom_ms = verdict.reference_ms = 1e30;
  for (int turn = 0; turn < 5; ++turn) {
    const auto best = [&](double& ms, const OpImpl& impl) {
      ms = std::min(ms, options_.milliseconds([&] { results_of(impl, leaves, gradients); }));
    };
    best(verdict.reference_ms, reference);
    best(verdict.custom_ms, custom);
  }
  verdict.custom = !options_.time_counts || kinds.replicated || verdict.custom_ms < verdict.reference_ms;
  return verdict;
}

void KernelAutotuner::read_file(const std::filesystem::path& path, bool is_kept) {
  std::ifstream file(path);
  const std::lock_guard lock(mutex_);
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!entry.is_object() || entry.value("machine", nlohmann::json()) != options_.machine) continue;
    const auto name = entry.find("operator"), custom = entry.find("own"), choice = entry.find("choice");
    if (name == entry.end() || !name->is_string()) continue;
    const auto key = name->get<std::string>();
    if (entry.contains("crashed")) {
      ++crashes_[key];
      continue;
    }
    crashes_.erase(key);
    if (custom != entry.end() && custom->is_boolean()) uses_custom_[key] = {custom->get<bool>(), is_kept};
    if (choice != entry.end() && choice->is_number_unsigned()) fastest_[key] = {choice->get<size_t>(), is_kept};
  }
}

// Appends each line in one write: several ranks may do so at once. Without the file the next run measures again.
void KernelAutotuner::append(const std::filesystem::path& path, nlohmann::json entry) const {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::app);
  file << entry.dump() + "\n" << std::flush;
}

/// Returns whether the run's folder has it too.
bool KernelAutotuner::remember(nlohmann::json entry) {
  entry["machine"] = options_.machine;
  const std::lock_guard lock(mutex_);
  for (const auto& file : {options_.file, kept_file_}) {
    if (!file.empty()) append(file, entry);
  }
  return !kept_file_.empty();
}

bool takes_aten_only() {
  const char* kernels = std::getenv("GPUTRAIN_KERNELS");
  return kernels != nullptr && std::string_view(kernels) == "aten";
}

Tensors run(std::string_view name, const Tensors& inputs, const KernelAutotuner::Inputs& kinds, const OpImpl& custom,
            const OpImpl& reference) {
  if (!custom || !kernel_autotuner().use_custom_kernel(name, inputs, kinds, custom, reference))
    return reference(inputs);
  try {
    return custom(inputs);
  } catch (const NoKernel& reason) {
    kernel_autotuner().give_up(name, inputs, reason.what());
  }
  return reference(inputs);
}

}  // namespace gputrain::ops
