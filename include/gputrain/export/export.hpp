// Writes trained models for other programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gputrain/trained/model.hpp"

namespace gputrain::app {

/// Types of numbers in a file. q8_0 is GGUF's: blocks of 32 whole numbers of 8 bits with one scale.
enum class StoredType { f32, f16, bf16, q8_0 };

/// "f32", "f16", "bf16" or "q8_0". Throws Error(usage).
StoredType stored_type_from_name(const std::string& name);

/// Writes a folder that transformers loads: config.json, weights in files of at most `file_bytes` with an index, and
/// the tokenizer's files. Classes have their names. Throws Error(usage) if no published family has this architecture,
/// and for a tokenizer of a model with classes that transformers does not have.
void export_transformers(trained::Model& model, const std::filesystem::path& folder, StoredType type,
                         int64_t file_bytes = int64_t{5} << 30);

/// Writes a folder that sentence-transformers loads: that of transformers, and the modules that make a text's vector.
/// `model` gives vectors. Throws Error(usage) as export_transformers() does.
void export_sentence_transformers(trained::Model& model, const std::filesystem::path& folder, StoredType type);

/// Writes one GGUF file with weights and tokenizer, for llama.cpp and what is built on it. Vectors, and matrices whose
/// rows have no multiple of 32 numbers, are stored in 32 and 16 bits. Throws Error(usage) for an architecture or a
/// tokenizer that GGUF, or this program, does not know.
void export_gguf(trained::Model& model, const std::filesystem::path& file, StoredType type);

/// Constants of an ONNX file above which they lie in a file of their own: protocol buffers hold 2 GB.
inline constexpr int64_t kMostOnnxBytes = int64_t{1} << 30;

/// Writes a model as an ONNX file of fp32 operators that takes any number of samples and, of texts, any length up to the
/// model's. More than `most_bytes` of weights lie in FILE.data beside it. Throws Error(usage) where a model calls an
/// operator that is not translated (onnx/operators/). Inputs of texts: `tokens` int64 [batch, length], and where the
/// output depends on them `lengths` int64 [batch], of the texts without their padding, and `token_types` int64 [batch,
/// length]; output: `logits`, or `vectors` of an embedder. Of images: `image` float [batch, channels, height, width],
/// normalised by what the file's metadata says; output: `logits`. Where samples are neither, the input has the name and
/// the sizes of the data's first field.
void export_onnx(trained::Model& model, const std::filesystem::path& file, int64_t most_bytes = kMostOnnxBytes);

}  // namespace gputrain::app
