// Writes trained models of texts for other programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gputrain/setup/language_model.hpp"
#include "gputrain/setup/text_encoder.hpp"

namespace gputrain::app {

/// Types of numbers in a file. q8_0 is GGUF's: blocks of 32 whole numbers of 8 bits with one scale.
enum class StoredType { f32, f16, bf16, q8_0 };

/// "f32", "f16", "bf16" or "q8_0". Throws Error(usage).
StoredType stored_type_from_name(const std::string& name);

/// Writes a folder that transformers loads: config.json, weights in files of at most `file_bytes` with an index, and
/// the tokenizer's files. Throws Error(usage) if no published family has this architecture.
void export_transformers(LanguageModel& model, const std::filesystem::path& folder, StoredType type,
                         int64_t file_bytes = int64_t{5} << 30);

/// The same for an encoder with its head: its classes have their names. Throws Error(usage) also for a tokenizer that
/// transformers does not have.
void export_transformers(TextEncoder& encoder, const std::filesystem::path& folder, StoredType type);

/// Writes a folder that sentence-transformers loads: that of transformers, and the modules that make a text's vector.
/// Throws Error(usage) as export_transformers() does, and if the encoder gives no vectors.
void export_sentence_transformers(TextEncoder& encoder, const std::filesystem::path& folder, StoredType type);

/// Writes one GGUF file with weights and tokenizer, for llama.cpp and what is built on it. Vectors, and matrices whose
/// rows have no multiple of 32 numbers, are stored in 32 and 16 bits. Throws Error(usage) for an architecture or a
/// tokenizer that GGUF, or this program, does not know.
void export_gguf(LanguageModel& model, const std::filesystem::path& file, StoredType type);

}  // namespace gputrain::app
