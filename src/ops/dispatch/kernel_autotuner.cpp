#include "kernel_autotuner.hpp"

#include <algorithm>
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

KernelAutotuner::KernelAutotuner(Options options) : options_(std::move(options)) {
  if (!options_.time_counts) options_.machine += ", without a clock";  // do not mix with timed choices
  read_file();
}

template <class Answer>
std::optional<Answer> KernelAutotuner::known(const std::unordered_map<std::string, Answer>& answers,
                                             const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = answers.find(key);
  return found == answers.end() ? std::nullopt : std::optional(found->second);
}

bool KernelAutotuner::use_custom_kernel(std::string_view name, const Tensors& inputs, const Inputs& kinds,
                                        const OpImpl& custom, const OpImpl& reference) {
  if (options_.mode == Mode::never) return false;
  const std::string key = key_of(name, inputs);
  if (const auto answer = known(uses_custom_, key)) return *answer;
  if (!options_.can_measure()) return false;
  Verdict verdict;
  const auto aside = options_.aside ? options_.aside() : nullptr;
  try {
    verdict = compare_what_fits(inputs, kinds, custom, reference);
  } catch (const std::exception& error) {
    const std::string_view what = error.what();  // ATen's messages end with stack frames
    log::warning(fmt::format("{}: our kernel failed, using ATen: {}", key, what.substr(0, what.find('\n'))));
    return settled(key, false);
  }
  log::info(fmt::format("kernels {}: own {:.3f} ms, aten {:.3f} ms, error {:.1e}: {}", key, verdict.custom_ms,
                        verdict.reference_ms, verdict.apart, verdict.custom ? "own" : "aten"));
  remember({{"operator", key},
            {"own", verdict.custom},
            {"own_ms", verdict.custom_ms},
            {"aten_ms", verdict.reference_ms},
            {"error", verdict.apart}});
  return settled(key, verdict.custom);
}

void KernelAutotuner::give_up(std::string_view name, const Tensors& inputs, std::string_view reason) {
  const std::string key = key_of(name, inputs);
  log::warning(fmt::format("{}: no kernel for it, using ATen: {}", key, reason));
  const std::lock_guard lock(mutex_);
  uses_custom_[key] = false;
}

// If two threads compared at once, the first answer counts.
bool KernelAutotuner::settled(const std::string& key, bool custom) {
  const std::lock_guard lock(mutex_);
  return uses_custom_.emplace(key, custom).first->second;
}

std::optional<size_t> KernelAutotuner::fastest(const std::string& name, size_t ways,
                                               const std::function<void(size_t)>& attempt) {
  if (!options_.time_counts || ways < 2) return 0;
  if (const auto answer = known(fastest_, name); answer && *answer < ways) return answer;
  if (!options_.can_measure()) return std::nullopt;
  const auto aside = options_.aside ? options_.aside() : nullptr;
  const std::vector<double> times = times_of(ways, attempt);
  const auto best = std::min_element(times.begin(), times.end());
  const auto choice = static_cast<size_t>(best - times.begin());
  log::info(fmt::format("{}: {} of {}, {:.3f} ms instead of {:.3f}", name, choice + 1, ways, *best, times[0]));
  const std::lock_guard lock(mutex_);
  fastest_[name] = choice;
  remember({{"operator", name}, {"choice", choice}, {"ways", ways}, {"own_ms", *best}});
  return choice;
}

/// Best time of each way, in turns; infinite if the way throws.
std::vector<double> KernelAutotuner::times_of(size_t ways, const std::function<void(size_t)>& attempt) const {
  constexpr int kTurns = 3, kRepeats = 4;  // repeats: one attempt may be too short to time
  std::vector<double> times(ways, std::numeric_limits<double>::infinity());
  std::vector<bool> fails(ways);
  for (int turn = -1; turn < kTurns; ++turn) {  // turn -1 is a warm-up
    for (size_t i = 0; i < ways; ++i) {
      try {
        const double took = fails[i] ? 0 : options_.milliseconds([&] {
          for (int repeat = 0; repeat < kRepeats; ++repeat) attempt(i);
        });
        if (turn >= 0 && !fails[i]) times[i] = std::min(times[i], took / kRepeats);
      } catch (const std::exception&) {
        fails[i] = true;
        times[i] = std::numeric_limits<double>::infinity();
      }
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

void KernelAutotuner::read_file() {
  std::ifstream file(options_.file);
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!entry.is_object() || entry.value("machine", nlohmann::json()) != options_.machine) continue;
    const auto key = entry.find("operator"), custom = entry.find("own"), choice = entry.find("choice");
    if (key == entry.end() || !key->is_string()) continue;
    if (custom != entry.end() && custom->is_boolean()) uses_custom_[key->get<std::string>()] = custom->get<bool>();
    if (choice != entry.end() && choice->is_number_unsigned())
      fastest_[key->get<std::string>()] = choice->get<size_t>();
  }
}

// Appends each line in one write: several ranks may do so at once.
void KernelAutotuner::remember(const nlohmann::json& found) const {
  if (options_.file.empty()) return;
  std::error_code ignored;  // without the file the next run measures again
  std::filesystem::create_directories(options_.file.parent_path(), ignored);
  nlohmann::json entry = found;
  entry["machine"] = options_.machine;
  std::ofstream file(options_.file, std::ios::app);
  file << entry.dump() + "\n" << std::flush;
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
