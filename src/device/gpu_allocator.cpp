#include "gputrain/device/gpu_allocator.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace gputrain::device {
namespace {

template <class Value>
std::optional<Value> whole(std::string_view text) {
  Value value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

bool is_power_of_two(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

bool is_megabytes(std::string_view text, int64_t least) {
  const auto value = whole<int64_t>(text);
  return value && *value >= least && *value <= int64_t{1} << 40;
}

bool is_divisions(std::string_view text) {
  const auto value = whole<int64_t>(text);
  return value && is_power_of_two(*value);
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (int depth = 0; const char& c : text) {
    const auto at = static_cast<size_t>(&c - text.data());
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != ',' || depth != 0) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

/// Returns whether this is a list of divisions for sizes up to the given megabytes, and above: "[256:1,512:2,>:4]".
bool is_list_of_divisions(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']') || text.size() < 3) return false;
  const auto parts = parts_of(text.substr(1, text.size() - 2));
  return std::ranges::all_of(parts, [&](const std::string_view& part) {
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) return false;
    const std::string_view size = part.substr(0, colon), divisions = part.substr(colon + 1);
    const bool is_last = &part == &parts.back();
    return ((size == ">" && is_last) || is_divisions(size)) && (divisions == "0" || is_divisions(divisions));
  });
}

bool is_between(std::string_view text, const std::function<bool(double)>& fits) {
  const auto value = whole<double>(text);
  return value && fits(*value);
}

struct Setting {
  const char* name;
  const char* wanted;
  bool (*fits)(std::string_view);
};

constexpr auto kIsTrueOrFalse = [](std::string_view text) { return text == "True" || text == "False"; };
constexpr const char* kTrueOrFalse = "True or False";

// The settings of torch 2.11, with its limits.
constexpr std::array kSettings{
    Setting{"expandable_segments", kTrueOrFalse, kIsTrueOrFalse},
    Setting{"max_split_size_mb", "megabytes, at least 20",
            [](std::string_view text) { return is_megabytes(text, 20); }},
    Setting{"large_segment_size_mb", "megabytes, more than 10",
            [](std::string_view text) { return is_megabytes(text, 11); }},
    Setting{"max_non_split_rounding_mb", "megabytes, at least 20",
            [](std::string_view text) { return is_megabytes(text, 20); }},
    Setting{"garbage_collection_threshold", "a number between 0 and 1",
            [](std::string_view text) { return is_between(text, [](double x) { return x > 0 && x < 1; }); }},
    Setting{"roundup_power2_divisions", "a power of two, or a list as in [256:1,512:2,>:4]",
            [](std::string_view text) { return is_divisions(text) || is_list_of_divisions(text); }},
    Setting{"per_process_memory_fraction", "a number from 0 to 1",
            [](std::string_view text) { return is_between(text, [](double x) { return x >= 0 && x <= 1; }); }},
    Setting{"pinned_use_background_threads", kTrueOrFalse, kIsTrueOrFalse},
    Setting{"pinned_use_cuda_host_register", kTrueOrFalse, kIsTrueOrFalse},
    Setting{"pinned_num_register_threads", "a power of two up to 128",
            [](std::string_view text) { return is_divisions(text) && *whole<int64_t>(text) <= 128; }},
    Setting{"pinned_reserve_segment_size_mb", "megabytes, at least 1",
            [](std::string_view text) { return is_megabytes(text, 1); }},
    Setting{"graph_capture_record_stream_reuse", kTrueOrFalse, kIsTrueOrFalse},
    Setting{"release_lock_on_cudamalloc", kTrueOrFalse, kIsTrueOrFalse},
    Setting{"backend",
            "native; for cudaMallocAsync, which is chosen at program start, write env: {PYTORCH_ALLOC_CONF: "
            "\"backend:cudaMallocAsync\"}",
            [](std::string_view text) { return text == "native"; }},
};

std::string problem_of_one(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    return "'" + std::string(text) + "' is not a setting of the allocator; write NAME:VALUE, separated by commas";
  const std::string name(text.substr(0, colon)), value(text.substr(colon + 1));
  const auto* found = std::ranges::find_if(kSettings, [&](const Setting& one) { return one.name == name; });
  if (found != kSettings.end())
    return found->fits(value) ? "" : name + " is '" + value + "', but must be " + found->wanted;
  std::string all;
  for (const auto& one : kSettings) all += std::string(all.empty() ? "" : ", ") + one.name;
  return "the allocator has no setting '" + name + "', only " + all;
}

}  // namespace

std::string problem_of_allocator_settings(std::string_view settings) {
  std::string text(settings);
  std::erase(text, ' ');
  for (const std::string_view part : parts_of(text)) {
    if (auto problem = problem_of_one(part); !problem.empty()) return problem;
  }
  return {};
}

}  // namespace gputrain::device
