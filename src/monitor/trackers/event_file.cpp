#include "event_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "../append_line.hpp"
#include "../read_whole.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/little_endian.hpp"
#include "gputrain/monitor/tracked_settings.hpp"

namespace gputrain::monitor::events {
namespace {

using protobuf::Field;
using protobuf::Message;

// Field numbers of tensorboard/compat/proto/{event,summary,tensor}.proto and plugins/hparams/{api,plugin_data}.proto.
namespace event_field {
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace value_field {
constexpr uint32_t kTag = 1, kSimpleValue = 2, kImage = 4, kTensor = 8, kMetadata = 9;
}
constexpr uint32_t kSummaryValue = 1;

constexpr size_t kLengthBytes = 8, kChecksumBytes = 4;

uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t value = byte;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
      made[byte] = value;
    }
    return made;
  }();
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

/// Masks the checksum, because a checksum over bytes that hold their own checksum says little.
std::string checksum(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian(static_cast<uint32_t>(((crc >> 15) | (crc << 17)) + 0xA282EAD8U), kChecksumBytes);
}

std::string framed(const Message& event) {
  const std::string length = little_endian(event.wire().size(), kLengthBytes);
  return length + checksum(length) + event.wire() + checksum(event.wire());
}

Message at_now(int64_t step) {
  return Message().number(event_field::kWallTime, seconds_since_epoch()).integer(event_field::kStep, step);
}

/// Names the part of TensorBoard that shows a value.
Message for_plugin(std::string_view name, std::string_view content = {}) {
  return Message().message(1, Message().text(1, name).bytes(2, content));
}

Message scalar(std::string_view tag, double value) {
  return Message()
      .text(value_field::kTag, tag)
      .single(value_field::kSimpleValue, static_cast<float>(value))
      .message(value_field::kMetadata, for_plugin("scalars"));
}

Message text(std::string_view tag, std::string_view value) {
  constexpr int64_t kString = 7;
  const Message shape = Message().message(2, Message().integer(1, 1));  // one dim of size 1
  return Message()
      .text(value_field::kTag, tag)
      .message(value_field::kTensor, Message().integer(1, kString).message(2, shape).text(8, value))
      .message(value_field::kMetadata, for_plugin("text"));
}

Message image(const Picture& picture) {
  constexpr int64_t kRgb = 3;
  const Message file =
      Message().integer(1, picture.height).integer(2, picture.width).integer(3, kRgb).bytes(4, *picture.png);
  return Message().text(value_field::kTag, picture.name).message(value_field::kImage, file);
}

/// Indents a text, so that TensorBoard, which reads Markdown, shows it unchanged.
std::string verbatim(const std::string& value) {
  std::string indented = "    ";
  for (const char c : value) indented += c == '\n' ? "\n    " : std::string(1, c);
  return indented;
}

Message hparams(std::string_view tag, const Message& data) {
  constexpr int64_t kFloat = 1;
  // The data is in the metadata; current readers want a value beside it.
  const Message nothing = Message().integer(1, kFloat).message(2, Message()).single(5, 0);
  return Message()
      .text(value_field::kTag, tag)
      .message(value_field::kTensor, nothing)
      .message(value_field::kMetadata, for_plugin("hparams", data.wire()));
}

Message with_value(Message event, const Message& value) {
  return event.message(event_field::kSummary, Message().message(kSummaryValue, value));
}

/// Returns a google.protobuf.Value; nullopt for a type that TensorBoard does not compare.
std::optional<Message> setting_of(const nlohmann::json& value) {
  if (value.is_number()) return Message().number(2, value.get<double>());
  if (value.is_string()) return Message().text(3, value.get<std::string>());
  if (value.is_boolean()) return Message().integer(4, value.get<bool>() ? 1 : 0);
  return std::nullopt;
}

/// Returns the event at the front of `bytes` with its frame; empty if it is incomplete.
std::string_view first_record(std::string_view bytes) {
  constexpr size_t kBefore = kLengthBytes + kChecksumBytes;
  if (bytes.size() < kBefore) return {};
  const std::string_view length = bytes.substr(0, kLengthBytes);
  const uint64_t count = from_little_endian(length);
  if (checksum(length) != bytes.substr(kLengthBytes, kChecksumBytes)) return {};
  if (count > bytes.size() - kBefore || bytes.size() - kBefore - count < kChecksumBytes) return {};
  if (checksum(bytes.substr(kBefore, count)) != bytes.substr(kBefore + count, kChecksumBytes)) return {};
  return bytes.substr(0, kBefore + count + kChecksumBytes);
}

bool stays(std::string_view record, int64_t step, int64_t evaluated_step) {
  const std::string_view event =
      record.substr(kLengthBytes + kChecksumBytes, record.size() - kLengthBytes - 2 * kChecksumBytes);
  int64_t last = step;
  bool is_session = false;  // the attempt writes its own, with its settings
  protobuf::read_fields(protobuf::find_field(event, event_field::kSummary).bytes, [&](const Field& value) {
    const std::string_view tag = protobuf::find_field(value.bytes, value_field::kTag).bytes;
    if (tag.starts_with("val/")) last = std::min(step, evaluated_step);
    if (tag.starts_with("_hparams_/")) is_session = true;
  });
  return !is_session && static_cast<int64_t>(protobuf::find_field(event, event_field::kStep).value) <= last;
}

}  // namespace

std::string header() { return framed(at_now(0).text(event_field::kFileVersion, "brain.Event:2")); }

std::string start(int64_t step) {
  constexpr int64_t kStart = 1;
  return framed(at_now(step).message(event_field::kSessionLog, Message().integer(1, kStart)));
}

std::string of(const Record& record) {
  Message summary;
  for (const auto& [name, value] : record.metrics) summary.message(kSummaryValue, scalar(name, value));
  if (record.kind == "train") summary.message(kSummaryValue, scalar("epoch", record.epoch));
  if (record.kind == "event")
    summary.message(kSummaryValue, text("events", record.label + (record.label.empty() ? "" : " ") + record.text));
  for (const WrittenText& one : record.texts) summary.message(kSummaryValue, text(one.name, verbatim(one.whole())));
  for (const Picture& one : record.pictures)
    summary.message(kSummaryValue, image(one))
        .message(kSummaryValue, text(one.name + "/caption", verbatim(one.caption)));
  return framed(at_now(record.step).message(event_field::kSummary, summary));
}

std::string session_start(const std::map<std::string, std::string>& settings, const std::string& name) {
  Message start;
  for (const auto& [key, yaml] : settings) {
    if (const auto value = setting_of(value_of(yaml)))
      start.message(1, Message().text(1, key).message(2, *value));  // an entry of a map
  }
  start.text(4, name).number(5, seconds_since_epoch());
  return framed(with_value(at_now(0), hparams("_hparams_/session_start_info", Message().message(3, start))));
}

std::string session_end(bool is_success) {
  constexpr int64_t kSuccess = 1, kFailure = 2;
  const Message end = Message().integer(1, is_success ? kSuccess : kFailure).number(2, seconds_since_epoch());
  return framed(with_value(at_now(0), hparams("_hparams_/session_end_info", Message().message(4, end))));
}

void truncate_file(const std::filesystem::path& path, const std::filesystem::path& left, int64_t step,
                   int64_t evaluated_step) {
  const std::string content = read_whole(path);
  std::string_view rest = content;
  std::string kept, aside;
  for (std::string_view record; !(record = first_record(rest)).empty(); rest.remove_prefix(record.size()))
    (stays(record, step, evaluated_step) ? kept : aside) += record;
  if (kept.size() == content.size()) return;
  aside += rest;
  if (!append_line(left, aside, /*sync=*/true)) {
    throw Error(ExitCode::environment, {.what = "cannot set aside the events about steps that are repeated",
                                        .where = left.string(),
                                        .hint = "free space there, or choose another output_dir"});
  }
  write_file_atomically(path, kept, ExitCode::environment);
}

}  // namespace gputrain::monitor::events
