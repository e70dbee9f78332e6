// Export of trained models for other programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gputrain/trained/model.hpp"

namespace gputrain::app {

/// Types of numbers in a file. q8_0 is GGUF's: blocks of 32 whole numbers of 8 bits with one scale.
enum class StoredType { f32, f16, bf16, q8_0 };

/// Parses "f32", "f16", "bf16" or "q8_0".
StoredType stored_type_from_name(const std::string& name);

/// Writes a folder that transformers loads: config.json, weights in files of at most `file_bytes` with an index, and
/// the tokenizer's files. Classes have their names. Throws Error(usage) if no published family has this architecture,
/// and for a tokenizer of a model with classes that transformers does not have.
void export_transformers(trained::Model& model, const std::filesystem::path& folder, StoredType type,
                         int64_t file_bytes = int64_t{5} << 30);

/// Writes a folder that sentence-transformers loads: that of transformers, and the modules that turn a text into a
/// vector. `model` gives vectors. Throws Error(usage) as export_transformers() does.
void export_sentence_transformers(trained::Model& model, const std::filesystem::path& folder, StoredType type);

/// Writes one GGUF file with weights and tokenizer, for llama.cpp and programs based on it. Vectors, and matrices whose
/// row length is no multiple of 32, are stored in 32 and 16 bits. Throws Error(usage) for an architecture or a
/// tokenizer that GGUF, or this program, does not know.
void export_gguf(trained::Model& model, const std::filesystem::path& file, StoredType type);

/// Limit for the constants in an ONNX file; more are stored in a file of their own: protocol buffers hold 2 GB.
inline constexpr int64_t kMostOnnxBytes = int64_t{1} << 30;

/// Writes a model as an ONNX file of fp32 operators, for any number of samples and texts of any length up to the
/// model's. More than `most_bytes` of weights are stored in FILE.data beside it. Throws Error(usage) if a model calls
/// an operator that is not translated (onnx/operators/). Inputs for texts: `tokens` int64 [batch, length], and if the
/// output depends on them `lengths` int64 [batch] of the texts without padding, and `token_types` int64 [batch,
/// length]; output: `logits`, or `vectors` of an embedder. For images: `image` float [batch, channels, height, width],
/// normalised as the metadata says; output: `logits`. For other samples the input has the name and sizes of the first
/// field.
void export_onnx(trained::Model& model, const std::filesystem::path& file, int64_t most_bytes = kMostOnnxBytes);

}  // namespace gputrain::app
