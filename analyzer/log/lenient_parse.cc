// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/lenient_parse.h"

#include <vector>

#include "analyzer/log/varint.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/stubs/logging.h"

namespace dstrace::log {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Length of the UTF-8 sequence at `at`, 0 if there is none.
size_t Utf8Length(const uint8_t* at, const uint8_t* end) {
  const uint8_t lead = *at;
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  if (static_cast<size_t>(end - at) < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at[i] & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what is past U+10FFFF.
  if (lead == 0xe0 && at[1] < 0xa0) return 0;
  if (lead == 0xed && at[1] > 0x9f) return 0;
  if (lead == 0xf0 && at[1] < 0x90) return 0;
  if (lead == 0xf4 && at[1] > 0x8f) return 0;
  return length;
}

void RepairText(uint8_t* at, const uint8_t* end) {
  while (at < end) {
    const size_t length = Utf8Length(at, end);
    if (length == 0) *at = '?';
    at += length == 0 ? 1 : length;
  }
}

// One byte replaces one byte, so no length changes.
void RepairMessage(const Descriptor& type, uint8_t* begin, const uint8_t* end) {
  uint8_t* at = begin;
  Field field;
  while (at < end && ReadField(at, end, &field)) {
    const FieldDescriptor* const known =
        type.FindFieldByNumber(static_cast<int>(field.number));
    if (known != nullptr && field.type == kWireLen) {
      uint8_t* const data = begin + (field.data - begin);
      if (known->type() == FieldDescriptor::TYPE_STRING) {
        RepairText(data, field.end);
      } else if (known->type() == FieldDescriptor::TYPE_MESSAGE) {
        RepairMessage(*known->message_type(), data, field.end);
      }
    }
    at = begin + (field.end - begin);
  }
}

bool Parse(google::protobuf::Message* message, std::span<const uint8_t> bytes) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

bool ParseLenient(google::protobuf::Message* message,
                  std::span<const uint8_t> bytes) {
  // libprotobuf prints a line about what it refuses.
  const google::protobuf::LogSilencer silencer;
  if (Parse(message, bytes)) return true;
  std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  RepairMessage(*message->GetDescriptor(), copy.data(),
                copy.data() + copy.size());
  return Parse(message, copy);
}

}  // namespace dstrace::log
