#include "gputrain/checkpoint/part.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <tuple>

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "block_file.hpp"
#include "dtypes.hpp"
#include "gputrain/checkpoint/safetensors_header.hpp"

namespace gputrain::checkpoint {
namespace {

int64_t product_of(const std::vector<int64_t>& sizes) { return c10::multiply_integers(sizes); }

std::string shown(at::ScalarType type, at::IntArrayRef sizes) {
  return fmt::format("{} [{}]", at::toString(type), fmt::join(sizes, ", "));
}

[[noreturn]] void refuse_damaged(const Part::File& file) {
  const std::string what = "damaged: its hash differs";
  if (file.is_shared)
    throw Unreadable(what + "; it holds frozen weights, which all checkpoints of its run need", file.path);
  throw Damage(what, file.path);
}

/// Reports a malformed header as damage if the file's hash differs.
SafetensorsHeader read_header(const Part::File& file) {
  try {
    return read_safetensors_header(file.path, ExitCode::checkpoint);
  } catch (const Error& flaw) {
    if (seal_of(file.path) != file.seal) refuse_damaged(file);
    throw Damage(flaw.parts().what, file.path);
  }
}

/// Copies bytes [begin, end) of a file to memory.
struct Copy {
  uint64_t begin, end;
  char* to;
};

/// Reads a file once: makes the copies and checks the seal.
void read_file(const Part::File& file, std::vector<Copy> copies) {
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) { return a.begin < b.begin; });
  BlockReader reader(file.path, BlockReader::From::cache);
  Sealer sealer;
  uint64_t place = 0;
  auto next = copies.begin();
  for (std::string_view block = reader.next(); !block.empty(); block = reader.next()) {
    sealer.add(block.data(), block.size());
    const uint64_t block_end = place + block.size();
    while (next != copies.end() && next->begin < block_end) {
      const uint64_t count = std::min(next->end, block_end) - next->begin;
      std::memcpy(next->to, block.data() + (next->begin - place), count);
      next->begin += count;
      next->to += count;
      if (next->begin < next->end) break;  // continues in the next block
      ++next;
    }
    place = block_end;
  }
  if (sealer.seal() != file.seal) refuse_damaged(file);
}

/// The tensor whose elements stand in `flat` in this order.
at::Tensor ordered_tensor(const at::Tensor& flat, const std::vector<int64_t>& sizes,
                          const std::vector<int64_t>& order) {
  if (order.empty()) return flat.view(sizes);
  std::vector<int64_t> in_order, back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    in_order.push_back(sizes[static_cast<size_t>(order[i])]);
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return flat.view(in_order).permute(back);
}

/// Copies what the target wants of `tensor`.
void take(const Part::Target& target, const at::Tensor& tensor) {
  if (!target.slice) {
    target.tensor.detach().copy_(tensor);
    return;
  }
  const std::vector<int64_t>& order = target.slice->order;
  const at::Tensor flat = (order.empty() ? tensor : tensor.permute(order)).reshape({-1});
  target.tensor.detach().view(-1).copy_(flat.narrow(0, target.slice->begin, target.tensor.numel()));
}

/// Destination of a file's bytes: the tensor itself if it is contiguous on the CPU, otherwise a temporary.
at::Tensor rows_of(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous()) return tensor.detach();
  return at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
}

[[noreturn]] void refuse(const std::string& what, const std::filesystem::path& where) {
  throw Error(ExitCode::checkpoint,
              {.what = what,
               .where = where.string(),
               .hint = "resume with the config and data of the job that wrote it (its classes or characters also set "
                       "sizes), or set checkpoint.resume: never"});
}

}  // namespace

Part::Part(std::vector<File> files) : files_(std::move(files)) {
  for (size_t i = 0; i < files_.size(); ++i) add_file(i);
  for (auto& [name, entry] : tensors_) {
    const std::filesystem::path& where = files_[entry.pieces.front().file].path;
    std::sort(entry.pieces.begin(), entry.pieces.end(),
              [](const Piece& a, const Piece& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
    int64_t reached = 0;
    for (const Piece& piece : entry.pieces) {
      if (piece.begin > reached) throw Damage(fmt::format("no file has element {} of '{}'", reached, name), where);
      if (piece.begin < reached)
        throw Damage(fmt::format("two files have element {} of '{}'", piece.begin, name), where);
      reached = piece.end;
    }
    if (reached != product_of(entry.sizes))
      throw Damage(fmt::format("no file has element {} of '{}'", reached, name), where);
  }
}

void Part::add_file(size_t index) {
  const File& file = files_[index];
  size_t sliced = 0;
  for (StoredTensor& stored : read_header(file).tensors) {
    const auto slice = file.slices.find(stored.name);
    const bool is_slice = slice != file.slices.end();
    sliced += is_slice;
    const int64_t begin = is_slice ? slice->second.begin : 0, numel = product_of(stored.sizes);
    const std::vector<int64_t>& shape = is_slice ? slice->second.shape : stored.sizes;
    if (is_slice && (stored.sizes.size() != 1 || numel > product_of(shape) - begin)) {
      throw Damage("'" + stored.name + "' does not match its slice in the manifest", file.path);
    }
    const std::vector<int64_t> order = is_slice ? slice->second.order : std::vector<int64_t>();
    const auto [place, is_new] = tensors_.try_emplace(
        stored.name, Entry{.type = scalar_type_of(stored.dtype), .sizes = shape, .order = order, .pieces = {}});
    Entry& entry = place->second;
    if (entry.order != order) throw Damage("'" + stored.name + "' has another order in another file", file.path);
    if (entry.sizes != shape || entry.type != scalar_type_of(stored.dtype)) {
      throw Damage("'" + stored.name + "' has another dtype or shape in another file", file.path);
    }
    entry.pieces.push_back({.file = index, .begin = begin, .end = begin + numel, .place = stored.begin});
  }
  if (sliced != file.slices.size()) throw Damage("lacks a slice that the manifest names", file.path);
}

std::vector<std::string> Part::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, entry] : tensors_) names.push_back(name);
  return names;
}

const Part::Entry& Part::entry_of(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse("there is no tensor '" + name + "'", files_.front().path);
  return found->second;
}

const SafetensorsFile& Part::mapped(size_t file) const {
  return mapped_.try_emplace(file, files_[file].path, ExitCode::checkpoint).first->second;
}

at::Tensor Part::tensor(const std::string& name) const {
  const Entry& entry = entry_of(name);
  if (entry.pieces.size() == 1 && entry.order.empty())
    return mapped(entry.pieces[0].file).tensor(name).view(entry.sizes);
  const at::Tensor flat = at::empty({product_of(entry.sizes)}, at::TensorOptions().dtype(entry.type));
  for (const Piece& piece : entry.pieces) {
    flat.slice(0, piece.begin, piece.end).copy_(mapped(piece.file).tensor(name));
  }
  return ordered_tensor(flat, entry.sizes, entry.order).contiguous();
}

void Part::check(const Target& target) const {
  const Entry& entry = entry_of(target.name);
  const at::IntArrayRef sizes = target.slice ? at::IntArrayRef(target.slice->shape) : target.tensor.sizes();
  if (entry.type != target.tensor.scalar_type() || sizes != at::IntArrayRef(entry.sizes)) {
    refuse(fmt::format("'{}' is {}, but {} in this job", target.name, shown(entry.type, entry.sizes),
                       shown(target.tensor.scalar_type(), sizes)),
           files_[entry.pieces.front().file].path);
  }
  GPUTRAIN_ASSERT(!target.slice || target.slice->begin + target.tensor.numel() <= product_of(entry.sizes),
                  "a slice lies within its tensor");
}

/// A mismatch may come from a damaged header that still parses: then throws Damage instead.
void Part::check_all(const std::vector<Target>& targets, std::optional<size_t> tensors) const {
  try {
    for (const Target& target : targets) check(target);
    if (tensors && *tensors != tensors_.size()) {
      refuse(fmt::format("has {} tensors, this job {}", tensors_.size(), *tensors), files_.front().path);
    }
  } catch (const Error&) {
    for (const File& file : files_) {
      if (seal_of(file.path) != file.seal) refuse_damaged(file);
    }
    throw;
  }
}

void Part::read(const std::vector<Target>& targets, std::optional<size_t> tensors) const {
  check_all(targets, tensors);
  std::vector<std::vector<Copy>> copies(files_.size());
  std::vector<at::Tensor> rows;  // of each target: its own elements, or the whole tensor in the order of the files
  const auto is_in_order = [&](const Target& target) {
    return entry_of(target.name).order == (target.slice ? target.slice->order : std::vector<int64_t>());
  };
  for (const Target& target : targets) {
    const Entry& entry = entry_of(target.name);
    const bool is_direct = is_in_order(target);
    rows.push_back(is_direct ? rows_of(target.tensor)
                             : at::empty({product_of(entry.sizes)}, at::TensorOptions().dtype(entry.type)));
    const int64_t begin = is_direct && target.slice ? target.slice->begin : 0, end = begin + rows.back().numel();
    const auto item = static_cast<int64_t>(target.tensor.element_size());
    char* const memory = static_cast<char*>(rows.back().mutable_data_ptr());
    for (const Piece& piece : entry.pieces) {
      const int64_t from = std::max(begin, piece.begin), until = std::min(end, piece.end);
      if (from >= until) continue;
      const uint64_t place = piece.place + static_cast<uint64_t>((from - piece.begin) * item);
      const uint64_t bytes = static_cast<uint64_t>((until - from) * item);
      copies[piece.file].push_back({place, place + bytes, memory + (from - begin) * item});
    }
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!copies[i].empty()) read_file(files_[i], std::move(copies[i]));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    const at::Tensor& from = rows[i];
    if (from.scalar_type() == at::kBool &&
        !are_truth_values(static_cast<const char*>(from.const_data_ptr()), from.nbytes())) {
      throw Damage("'" + targets[i].name + "' has bool values other than 0 and 1", files_.front().path);
    }
    const Entry& entry = entry_of(targets[i].name);
    if (!is_in_order(targets[i])) {
      take(targets[i], ordered_tensor(from, entry.sizes, entry.order));
    } else if (!from.is_alias_of(targets[i].tensor)) {
      targets[i].tensor.detach().copy_(from);
    }
  }
}

std::vector<Part::Target> whole(const NamedTensors& tensors) {
  std::vector<Part::Target> targets;
  for (const auto& [name, tensor] : tensors) targets.push_back({.name = name, .tensor = tensor, .slice = std::nullopt});
  return targets;
}

void restore(const Part& part, const NamedTensors& live) { part.read(whole(live), live.size()); }

}  // namespace gputrain::checkpoint
