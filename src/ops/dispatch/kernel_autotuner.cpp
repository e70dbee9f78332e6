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

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "kernel_comparison.hpp"

namespace gputrain::ops {
namespace {

std::string key_of(std::string_view name, const Tensors& inputs, int version) {
  std::string key(name);
  if (version > 1) key += fmt::format(" {}", version);
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

}  // namespace

KernelAutotuner::KernelAutotuner(Options options)
    : options_(std::move(options)), trials_(options_.file.empty() ? "" : options_.file.string() + ".trials") {
  if (!options_.time_counts) options_.machine += ", without a clock";  // do not mix with timed choices
  trials_.take_interrupted([&](const std::vector<std::string>& marks) {
    for (const std::string& mark : marks) {
      auto entry = parse_json(mark);
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

void KernelAutotuner::limit_trials(double seconds) {
  const std::lock_guard lock(mutex_);
  most_seconds_ = seconds;
}

bool KernelAutotuner::has_spent_trials() const {
  if (!options_.time_counts) return false;
  const double spent = trials_.done().seconds;
  const std::lock_guard lock(mutex_);
  return spent >= most_seconds_;
}

void KernelAutotuner::note_way(std::string_view name, bool is_own) {
  const std::lock_guard lock(mutex_);
  last_.insert_or_assign(std::string(name), is_own);
}

bool KernelAutotuner::way_of_last_shape(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto last = last_.find(name);
  return last != last_.end() && last->second;
}

void KernelAutotuner::begin_rough_choices() {
  const std::lock_guard lock(mutex_);
  before_rough_ = uses_custom_;
  spent_before_rough_ = trials_.done().seconds;
}

void KernelAutotuner::end_rough_choices() {
  const std::lock_guard lock(mutex_);
  uses_custom_ = std::move(*before_rough_);
  before_rough_.reset();
  most_seconds_ += trials_.done().seconds - spent_before_rough_;  // forgotten trials do not count
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
  if (options_.mode == Mode::never || computes_exact_results()) return false;
  const std::string key = key_of(name, inputs, kinds.version);
  if (const auto answer = known(uses_custom_, "own", key)) return *answer;
  if (!options_.can_measure()) return false;
  if (!kinds.replicated && has_spent_trials()) return settled(key, {.value = way_of_last_shape(name)});
  KernelComparison found;
  const auto aside = options_.aside ? options_.aside() : nullptr;
  try {
    // If ranks need the same bits, all must choose the same. So crashes, which one host remembers, do not count.
    const auto trial = kinds.replicated ? nullptr : begin_trial(key);
    found = compare_kernels(inputs, kinds, custom, reference, options_);
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
  note_way(name, found.custom);
  log::info(fmt::format("kernels {}: own {:.3f} ms, aten {:.3f} ms, error {:.1e}: {}", key, found.custom_ms,
                        found.reference_ms, found.apart, found.custom ? "own" : "aten"));
  if (chooses_roughly()) return settled(key, {found.custom});
  const bool is_kept = remember({{"operator", key},
                                 {"own", found.custom},
                                 {"own_ms", found.custom_ms},
                                 {"aten_ms", found.reference_ms},
                                 {"error", found.apart}});
  return settled(key, {found.custom, is_kept});
}

void KernelAutotuner::give_up(std::string_view name, const Tensors& inputs, const Inputs& kinds,
                              std::string_view reason) {
  const std::string key = key_of(name, inputs, kinds.version);
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
                                               const std::function<void(size_t)>& attempt,
                                               const std::function<bool()>& may_try) {
  if (!options_.time_counts || ways < 2) return 0;
  if (const auto answer = known(fastest_, "choice", name); answer && *answer < ways) return answer;
  if (!options_.can_measure()) return std::nullopt;
  if (has_spent_trials() || (may_try && !may_try())) {
    settle(name, 0);
    return 0;
  }
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

void KernelAutotuner::settle(const std::string& name, size_t way) {
  const std::lock_guard lock(mutex_);
  Answer<size_t>& answer = fastest_[name];
  answer = {.value = way, .is_used = true};
  keep("choice", name, answer);
}

/// Returns the best time of each way, in turns; infinite if the way throws. A way that is clearly slower than the best
/// is tried no further.
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

void KernelAutotuner::read_file(const std::filesystem::path& path, bool is_kept) {
  std::ifstream file(path);
  const std::lock_guard lock(mutex_);
  for (std::string line; std::getline(file, line);) {
    const auto entry = parse_json(line);
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
    kernel_autotuner().give_up(name, inputs, kinds, reason.what());
  }
  return reference(inputs);
}

}  // namespace gputrain::ops
