#include "gputrain/checkpoint/safetensors_writer.hpp"

#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "../block_file.hpp"
#include "dtypes.hpp"
#include "gputrain/checkpoint/safetensors_header.hpp"
#include "gputrain/core/atomic_file.hpp"

namespace gputrain::checkpoint {
namespace {

/// The header of a file, and the place of each tensor.
struct FileLayout {
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::string header;
};

FileLayout layout_of(const NamedTensors& tensors, Metadata metadata = {}) {
  metadata["format"] = "pt";  // transformers rejects files without it
  FileLayout layout;
  for (const auto& [name, tensor] : tensors) {
    layout.tensors.push_back({.name = name, .dtype = dtype_of(tensor.scalar_type()), .sizes = tensor.sizes().vec()});
  }
  layout.header = layout_safetensors(layout.tensors, metadata);
  return layout;
}

std::map<std::string_view, at::Tensor> by_name(const NamedTensors& tensors) {
  std::map<std::string_view, at::Tensor> named;
  for (const auto& [name, tensor] : tensors)
    GPUTRAIN_ASSERT(named.emplace(name, tensor).second, "two tensors of one name: " + name);
  return named;
}

/// Returns a tensor in the layout of a file: a copy unless it is row-major in CPU memory.
at::Tensor row_major_on_cpu(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU).contiguous(); }

}  // namespace

struct SafetensorsWriter::State {
  State(const std::filesystem::path& path, FileLayout layout)
      : file(path, ExitCode::checkpoint), in_order(file), places(std::move(layout.tensors)), is_written(places.size()) {
    in_order->write(layout.header.data(), layout.header.size());
    for (size_t i = 0; i < places.size(); ++i) {
      const std::string& name = places[i].name;
      GPUTRAIN_ASSERT(numbers.emplace(name, i).second, "two tensors of one name: " + name);
    }
  }

  void write_elsewhere(const StoredTensor& place, const at::Tensor& rows) {
    if (in_order) in_order->finish();
    in_order.reset();
    file.write_at(static_cast<int64_t>(place.begin),
                  std::string_view(static_cast<const char*>(rows.const_data_ptr()), rows.nbytes()));
  }

  AtomicFile file;
  std::optional<BlockWriter> in_order;         // uses the file; until a tensor comes out of the file's order
  const std::vector<StoredTensor> places;      // in the order of their data
  std::map<std::string_view, size_t> numbers;  // numbers of places
  std::vector<bool> is_written;
  size_t count = 0;  // number of written tensors
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const NamedTensors& tensors,
                                     const Metadata& metadata)
    : state_(std::make_unique<State>(path, layout_of(tensors, metadata))) {}
SafetensorsWriter::~SafetensorsWriter() = default;

std::vector<std::string> SafetensorsWriter::names() const {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : state_->places) names.push_back(tensor.name);
  return names;
}

void SafetensorsWriter::write(const std::string& name, const at::Tensor& values) {
  const auto found = state_->numbers.find(name);
  GPUTRAIN_ASSERT(found != state_->numbers.end(), "the file has no room for tensor " + name);
  const size_t number = found->second;
  const StoredTensor& place = state_->places[number];
  GPUTRAIN_ASSERT(dtype_of(values.scalar_type()) == place.dtype && values.sizes() == at::IntArrayRef(place.sizes),
                  "another type or size than was told: " + name);
  GPUTRAIN_ASSERT(!state_->is_written[number], "a tensor is written once: " + name);
  const at::Tensor rows = row_major_on_cpu(values);
  if (state_->in_order && number == state_->count) {
    state_->in_order->write(rows.const_data_ptr(), rows.nbytes());
  } else {
    state_->write_elsewhere(place, rows);
  }
  state_->is_written[number] = true;
  ++state_->count;
}

std::optional<FileSeal> SafetensorsWriter::commit() {
  GPUTRAIN_ASSERT(state_->count == state_->places.size(), "a file is committed with all of its tensors");
  std::optional<FileSeal> seal;
  if (state_->in_order) seal = state_->in_order->finish();
  state_->file.commit();
  return seal;
}

uint64_t safetensors_bytes(const NamedTensors& tensors) {
  const FileLayout layout = layout_of(tensors);
  return layout.tensors.empty() ? layout.header.size() : layout.tensors.back().end;
}

FileSeal seal_of_safetensors(const NamedTensors& tensors, std::map<std::string, FileSeal>& of_tensors) {
  const FileLayout layout = layout_of(tensors);
  const auto named = by_name(tensors);
  Sealer sealer;
  sealer.add(layout.header.data(), layout.header.size());
  for (const StoredTensor& place : layout.tensors) {  // one at a time: at most one is copied
    const at::Tensor rows = row_major_on_cpu(named.at(place.name));
    sealer.add(rows.const_data_ptr(), rows.nbytes());
    Sealer own;
    own.add(rows.const_data_ptr(), rows.nbytes());
    of_tensors[place.name] = own.seal();
  }
  return sealer.seal();
}

FileSeal write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors, const Metadata& metadata) {
  SafetensorsWriter writer(path, tensors, metadata);
  const auto named = by_name(tensors);
  for (const std::string& name : writer.names()) writer.write(name, named.at(name));
  return writer.commit().value();
}

}  // namespace gputrain::checkpoint
