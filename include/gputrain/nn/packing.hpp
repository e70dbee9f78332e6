// Packings: ways to keep a frozen matrix in few bits. One per file in src/nn/packings.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/catalog.hpp"
#include "gputrain/ops/frozen_linear.hpp"

namespace gputrain::nn {

class Packing;

/// A matrix as it is packed, without its values.
struct PackedShape {
  int64_t rows = 0, columns = 0;
  at::ScalarType stored = at::kFloat;  // type of the values before they were packed, to which reads round
};

/// Tensors of a file by name.
struct FileTensors {
  std::function<bool(const std::string& name)> has;
  std::function<at::Tensor(const std::string& name)> tensor;
  std::function<std::string(const std::string& name)> where;  // path of the file with a tensor, for messages
};

/// A matrix that is packed already in a file.
struct FoundPacked {
  std::shared_ptr<const Packing> packing;
  PackedShape shape;
  std::function<std::vector<at::Tensor>()> parts;  // reads them
  std::vector<std::string> names_beside;  // names of the file's tensors that belong to it, but for that of the codes
};

class Packing {
 public:
  /// A tensor that is kept for a matrix. The first one, without a name, has the codes.
  struct Part {
    std::string name;
    at::ScalarType type;
    std::vector<int64_t> sizes;
  };

  virtual ~Packing();

  virtual std::vector<Part> parts(const PackedShape& shape) const = 0;
  /// Packs a contiguous matrix [rows, columns] of finite floats; unpack() writes such a one.
  virtual void pack(const at::Tensor& matrix, const std::vector<at::Tensor>& parts) const = 0;
  virtual void unpack(const std::vector<at::Tensor>& parts, at::ScalarType stored, const at::Tensor& into) const = 0;

  /// Returns whether a config.json's quantization_config means this packing, and the options that it then has, as YAML.
  using Options = std::vector<std::pair<std::string, std::string>>;
  virtual std::optional<Options> options_in(const nlohmann::json& quantization_config) const = 0;
  /// Returns the quantization_config with which transformers reads what in_file() gives.
  virtual nlohmann::json quantization_config() const = 0;

  /// Returns the matrix that files have packed in this way under a name, or null if they have it in another way. Throws
  /// Error(data) for parts that are missing or do not fit each other.
  virtual std::optional<FoundPacked> find(const FileTensors& files, const std::string& name) const = 0;
  /// Returns the tensors of a file for a matrix with this name.
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  virtual Named in_file(const std::string& name, const PackedShape& shape,
                        const std::vector<at::Tensor>& parts) const = 0;
};

using PackingCatalog = config::Catalog<Packing>;
PackingCatalog& packings();

/// A frozen matrix that is kept packed.
class Packed {
 public:
  /// Makes tensors for the parts, on this device, with undefined content.
  Packed(std::shared_ptr<const Packing> packing, const PackedShape& shape, at::Device device);

  const Packing& packing() const noexcept { return *packing_; }
  const PackedShape& shape() const noexcept { return shape_; }
  const std::vector<at::Tensor>& parts() const noexcept { return parts_; }
  /// Returns the names of the parts, which follow that of the matrix: "", "_absmax".
  std::vector<std::string> suffixes() const;

  /// Packs a matrix [rows, columns]. The parts must have memory.
  void fill(const at::Tensor& matrix) const;
  /// Takes the parts of a file. Throws Error(data) if they are of another kind or size.
  void fill(const FoundPacked& found, const std::string& where) const;
  /// Returns the matrix as products read it.
  ops::FrozenMatrix matrix() const;

 private:
  std::shared_ptr<const Packing> packing_;
  PackedShape shape_;
  std::vector<at::Tensor> parts_;
};

}  // namespace gputrain::nn
