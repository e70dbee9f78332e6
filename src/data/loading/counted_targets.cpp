#include "counted_targets.hpp"

#include <algorithm>
#include <exception>
#include <vector>

#include <ATen/ops/ne.h>

#include "batch_source.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/batch.hpp"
#include "row_reader.hpp"

namespace gputrain::data {
namespace {

/// Returns whether a sample has many targets, some of which may not count.
bool has_targets(const Field& field) {
  return field.type == at::kLong && field.fill == static_cast<double>(kIgnoreIndex) && field.numel() > 1;
}

int64_t counted_in(const at::Tensor& values) { return at::ne(values, kIgnoreIndex).sum().item<int64_t>(); }

/// Rounds up to one of about 16 numbers, which are multiples of the tiles of matrix units.
int64_t rounded_up(int64_t count, int64_t entries) {
  constexpr int64_t kTogether = 128, kSteps = 16;
  const int64_t step = std::max<int64_t>(1, ceil_divide(entries, kTogether * kSteps)) * kTogether;
  return std::max<int64_t>(1, ceil_divide(count, step)) * step;
}

}  // namespace

CountedTargets::CountedTargets(const std::shared_ptr<const Dataset>& dataset, const LoaderOptions& options,
                               const std::map<int, LengthClasses>& classes) {
  constexpr int64_t kMostBatches = 512, kMostEntries = int64_t{1} << 21, kLeastSeen = 4;
  const auto& fields = dataset->layout().fields;
  if (!dataset->is_cheap_to_read() || std::ranges::none_of(fields, has_targets)) return;
  const RowReader reader(dataset, options);
  const auto source = make_batch_source(reader, {});
  std::map<std::pair<size_t, int64_t>, int64_t> seen;
  int64_t entries = 0;
  for (int64_t index = 0; index < kMostBatches && entries < kMostEntries; ++index) {
    FilledBatch filled;
    try {
      filled = source->next();
    } catch (const std::exception&) {
      break;  // it is reported when the loader reads it
    }
    const auto lengths = lengths_of(reader, classes, index, filled.buffers);
    const int64_t rows = reader.plan().micro_batch(index).rows;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (!has_targets(fields[i])) continue;
      const at::Tensor values = filled.buffers.values[i].narrow(0, 0, rows);
      const std::pair key{i, fields[i].ragged ? lengths[i] : values.size(1)};
      ++seen[key];
      most_[key] = std::max(most_[key], counted_in(values));
      entries += values.numel();
    }
  }
  std::erase_if(most_, [&](const auto& known) { return seen.at(known.first) < kLeastSeen; });
}

int64_t CountedTargets::most_of(size_t field, const at::Tensor& values) const {
  if (most_.empty() || values.dim() < 2) return 0;
  const auto known = most_.find({field, values.size(1)});
  if (known == most_.end()) return 0;
  const int64_t most = rounded_up(known->second, values.numel());
  return 4 * most < 3 * values.numel() && counted_in(values) <= most ? most : 0;
}

}  // namespace gputrain::data
