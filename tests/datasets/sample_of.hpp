// Reads one sample of a dataset, for tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gputrain/data/dataset.hpp"

namespace gputrain::datasets {

/// Every field of a sample, as doubles.
inline std::map<std::string, std::vector<double>> sample_of(const data::Dataset& dataset, int64_t index,
                                                            const data::ReadContext& context = {}) {
  const auto& fields = dataset.layout().fields;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<int64_t> counts(fields.size(), -1);
  for (const auto& field : fields) bytes.emplace_back(field.bytes());
  data::BatchMemory memory;
  for (size_t i = 0; i < fields.size(); ++i) {
    memory.push_back({.values = bytes[i].data(),
                      .counts = fields[i].ragged ? &counts[i] : nullptr,
                      .bytes = fields[i].bytes(),
                      .element_bytes = c10::elementSize(fields[i].type)});
  }
  dataset.read(index, context, data::SampleRow(memory, 0));
  std::map<std::string, std::vector<double>> sample;
  for (size_t i = 0; i < fields.size(); ++i) {
    const int64_t count = fields[i].ragged ? counts[i] : fields[i].numel();
    for (int64_t at = 0; at < count; ++at) {
      const std::byte* place = bytes[i].data() + static_cast<size_t>(at) * c10::elementSize(fields[i].type);
      if (fields[i].type == at::kLong) {
        int64_t value = 0;
        std::memcpy(&value, place, sizeof value);
        sample[fields[i].name].push_back(static_cast<double>(value));
      } else if (fields[i].type == at::kByte) {
        sample[fields[i].name].push_back(std::to_integer<int>(*place));
      } else {
        float value = 0;
        std::memcpy(&value, place, sizeof value);
        sample[fields[i].name].push_back(value);
      }
    }
  }
  return sample;
}

}  // namespace gputrain::datasets
