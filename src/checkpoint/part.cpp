#include "gputrain/checkpoint/part.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <string_view>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "block_file.hpp"
#include "gputrain/checkpoint/safetensors_header.hpp"
#include "safetensors/dtypes.hpp"
#include "slice_runs.hpp"

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

/// The elements that one target takes from one piece, copied from the file's blocks as they pass.
class Transfer {
 public:
  /// `place`: the piece's byte in the file. `memory`: the target's.
  Transfer(SharedRuns runs, uint64_t item_bytes, uint64_t place, char* memory)
      : runs_(std::move(runs)), item_bytes_(item_bytes), place_(place), memory_(memory) {
    load();
    first_ = begin_;
  }

  bool is_done() const noexcept { return runs_.is_at_end(); }
  uint64_t first() const noexcept { return first_; }  // byte of the file

  /// Copies from a block of the file that begins at byte `place`.
  void take(std::string_view block, uint64_t place) {
    const uint64_t block_end = place + block.size();
    while (!is_done() && begin_ < block_end) {
      const uint64_t count = std::min(end_, block_end) - begin_;
      std::memcpy(to_, block.data() + (begin_ - place), count);
      begin_ += count;
      to_ += count;
      if (begin_ < end_) return;  // continues in the next block
      runs_.next();
      load();
    }
  }

 private:
  void load() {
    begin_ = place_ + static_cast<uint64_t>(runs_.from()) * item_bytes_;
    end_ = begin_ + static_cast<uint64_t>(runs_.count()) * item_bytes_;
    to_ = memory_ + static_cast<uint64_t>(runs_.to()) * item_bytes_;
  }

  SharedRuns runs_;
  uint64_t item_bytes_, place_;
  char* memory_;
  uint64_t first_ = 0, begin_ = 0, end_ = 0;  // bytes of the run in the file
  char* to_ = nullptr;
};

/// Reads a file once: makes the copies and checks the seal.
void read_file(const Part::File& file, std::vector<Transfer> transfers) {
  std::ranges::sort(transfers, {}, &Transfer::first);
  BlockReader reader(file.path, BlockReader::From::cache);
  Sealer sealer;
  uint64_t place = 0;
  auto open = transfers.begin();
  for (std::string_view block = reader.next(); !block.empty(); block = reader.next()) {
    sealer.add(block.data(), block.size());
    const uint64_t block_end = place + block.size();
    for (auto each = open; each != transfers.end() && each->first() < block_end; ++each) each->take(block, place);
    while (open != transfers.end() && open->is_done()) ++open;
    place = block_end;
  }
  if (sealer.seal() != file.seal) refuse_damaged(file);
}

/// Returns the tensor whose elements stand in `flat` in this order.
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
  const at::Tensor to = target.tensor.detach();
  to.copy_(target.slice ? elements_of(tensor, *target.slice, to.numel()).view(to.sizes()) : tensor);
}

/// Returns the destination of a file's bytes: the tensor itself if it is contiguous on the CPU, otherwise a temporary.
at::Tensor rows_of(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous()) return tensor.detach();
  return at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
}

[[noreturn]] void refuse(const std::string& what, const std::filesystem::path& where) {
  throw Error(ExitCode::checkpoint,
              {.what = what,
               .where = where.string(),
               .hint = "resume with the config and data of the job that wrote it (its classes or characters also set "
                       "sizes), or start over: --new"});
}

}  // namespace

Part::Part(std::vector<File> files) : files_(std::move(files)) {
  for (size_t i = 0; i < files_.size(); ++i) add_file(i);
  for (const auto& [name, entry] : tensors_) check_cover(name, entry);
}

void Part::add_file(size_t index) {
  const File& file = files_[index];
  size_t sliced = 0;
  for (StoredTensor& stored : read_header(file).tensors) {
    const auto found = file.slices.find(stored.name);
    const bool is_slice = found != file.slices.end();
    sliced += is_slice;
    const int64_t numel = product_of(stored.sizes);
    const Slice slice = is_slice ? found->second : Slice{.shape = stored.sizes};
    if (is_slice && (stored.sizes.size() != 1 || numel > product_of(sizes_of_cut(slice)) - slice.begin)) {
      throw Damage("'" + stored.name + "' does not match its slice in the manifest", file.path);
    }
    const auto [place, is_new] = tensors_.try_emplace(
        stored.name,
        Entry{.type = scalar_type_of(stored.dtype), .sizes = slice.shape, .order = slice.order, .pieces = {}});
    Entry& entry = place->second;
    if (entry.order != slice.order) throw Damage("'" + stored.name + "' has another order in another file", file.path);
    if (entry.sizes != slice.shape || entry.type != scalar_type_of(stored.dtype)) {
      throw Damage("'" + stored.name + "' has another dtype or shape in another file", file.path);
    }
    entry.pieces.push_back({.file = index, .slice = slice, .count = numel, .place = stored.begin});
  }
  if (sliced != file.slices.size()) throw Damage("lacks a slice that the manifest names", file.path);
}

/// Takes the runs of all pieces in ascending order.
void Part::check_cover(const std::string& name, const Entry& entry) const {
  const auto refuse_element = [&](const char* who, int64_t element) {
    throw Damage(fmt::format("{} element {} of '{}'", who, element, name), files_[entry.pieces.front().file].path);
  };
  std::vector<SliceRuns> runs;
  using Next = std::pair<int64_t, size_t>;  // begin of the next run of a piece, and number of the piece
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  const auto add = [&](size_t piece) {
    if (!runs[piece].is_at_end()) queue.emplace(runs[piece].run().whole, piece);
  };
  for (const Piece& piece : entry.pieces) {
    runs.emplace_back(piece.slice, piece.count);
    add(runs.size() - 1);
  }
  int64_t reached = 0;
  while (!queue.empty() && queue.top().first <= reached) {
    const auto [begin, piece] = queue.top();
    if (begin < reached) refuse_element("two files have", begin);
    queue.pop();
    reached += runs[piece].run().count;
    runs[piece].next();
    add(piece);
  }
  if (reached != product_of(entry.sizes)) refuse_element("no file has", reached);
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
  const SliceRuns all({.shape = entry.sizes}, flat.numel());
  const auto item = static_cast<size_t>(flat.element_size());
  for (const Piece& piece : entry.pieces) {
    const at::Tensor stored = mapped(piece.file).tensor(name);
    const auto* from = static_cast<const char*>(stored.const_data_ptr());
    auto* const to = static_cast<char*>(flat.mutable_data_ptr());
    for (SharedRuns runs({piece.slice, piece.count}, all); !runs.is_at_end(); runs.next()) {
      std::memcpy(to + static_cast<size_t>(runs.to()) * item, from + static_cast<size_t>(runs.from()) * item,
                  static_cast<size_t>(runs.count()) * item);
    }
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
  if (!target.slice) return;
  GPUTRAIN_ASSERT(flaw_of(*target.slice).empty(), flaw_of(*target.slice) + ": " + target.name);
  GPUTRAIN_ASSERT(target.slice->begin + target.tensor.numel() <= product_of(sizes_of_cut(*target.slice)),
                  "a slice lies within its tensor");
}

/// Checks all targets. A mismatch may come from a damaged header that still parses: then throws Damage instead.
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
  std::vector<std::vector<Transfer>> transfers(files_.size());
  std::vector<at::Tensor> rows;  // for each target: its own elements, or the whole tensor in the order of the files
  const auto is_in_order = [&](const Target& target) {
    return entry_of(target.name).order == (target.slice ? target.slice->order : std::vector<int64_t>());
  };
  for (const Target& target : targets) {
    const Entry& entry = entry_of(target.name);
    const bool is_direct = is_in_order(target);
    rows.push_back(is_direct ? rows_of(target.tensor)
                             : at::empty({product_of(entry.sizes)}, at::TensorOptions().dtype(entry.type)));
    const auto item = static_cast<uint64_t>(rows.back().element_size());
    char* const memory = static_cast<char*>(rows.back().mutable_data_ptr());
    const SliceRuns wanted(is_direct && target.slice ? *target.slice : Slice{.shape = entry.sizes},
                           rows.back().numel());
    for (const Piece& piece : entry.pieces) {
      SharedRuns shared({piece.slice, piece.count}, wanted);
      if (!shared.is_at_end()) transfers[piece.file].emplace_back(std::move(shared), item, piece.place, memory);
    }
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!transfers[i].empty()) read_file(files_[i], std::move(transfers[i]));
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

at::Tensor elements_of(const at::Tensor& tensor, const Slice& slice, int64_t count) {
  at::Tensor part = slice.order.empty() ? tensor : tensor.permute(slice.order);
  if (slice.cut) {
    std::vector<at::Tensor> kept;
    for (const auto& [begin, end] : slice.cut->ranges) kept.push_back(part.slice(slice.cut->dim, begin, end));
    part = at::cat(kept, slice.cut->dim);
  }
  return part.reshape({-1}).narrow(0, slice.begin, count);
}

std::vector<Part::Target> whole(const NamedTensors& tensors) {
  std::vector<Part::Target> targets;
  for (const auto& [name, tensor] : tensors) targets.push_back({.name = name, .tensor = tensor, .slice = std::nullopt});
  return targets;
}

void restore(const Part& part, const NamedTensors& live) { part.read(whole(live), live.size()); }

}  // namespace gputrain::checkpoint
