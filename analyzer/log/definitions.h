// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_DEFINITIONS_H_
#define DSTRACE_ANALYZER_LOG_DEFINITIONS_H_

// Collects what a trace says beside its events: header, stacks, losses.
//
// Definitions may come in any order and from any chunk; Finish() ties them
// together. Ids that no file of this size could hold are refused, so memory is
// proportional to the file. Not thread-safe.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analyzer/log/chunk_decoder.h"
#include "analyzer/model/run.h"

namespace dstrace::proto {
class Frame;  // NOLINT(bugprone-forward-declaration-namespace)
class Header;
class Module;  // NOLINT(bugprone-forward-declaration-namespace)
class Stack;   // NOLINT(bugprone-forward-declaration-namespace)
}  // namespace dstrace::proto

namespace dstrace::log {

class Definitions : public RecordSink {
 public:
  // Ids that a file of so many bytes cannot hold are damage.
  void LimitTo(uint64_t file_bytes);

  bool OnRecord(Record record, std::span<const uint8_t> bytes) override;

  [[nodiscard]] bool has_header() const { return headers_ > 0; }
  [[nodiscard]] int headers() const { return headers_; }
  [[nodiscard]] uint32_t format_version() const { return format_version_; }
  [[nodiscard]] const StringTable& strings() const { return strings_; }

  // Process facts as recorded; the times are CLOCK_MONOTONIC and real time of
  // the header.
  [[nodiscard]] model::Process TakeProcess();
  [[nodiscard]] model::Stacks BuildStacks() const;
  [[nodiscard]] std::vector<model::Loss> Losses() const;

 private:
  struct PendingFrame {
    model::Frame frame;
    uint32_t name = 0;
    uint32_t file = 0;
    uint32_t module = 0;
  };
  struct PendingModule {
    model::Module module;
    uint32_t path = 0;
  };

  bool AddStack(std::span<const uint8_t> bytes);
  bool AddFrame(std::span<const uint8_t> bytes);
  bool AddModule(std::span<const uint8_t> bytes);
  bool AddString(std::span<const uint8_t> bytes);
  bool AddHeader(std::span<const uint8_t> bytes);
  bool AddProperty(std::span<const uint8_t> bytes);
  bool AddGpu(std::span<const uint8_t> bytes);
  bool AddLoss(std::span<const uint8_t> bytes);

  uint32_t id_limit_ = 0;
  StringTable strings_;
  std::vector<model::Stack> stacks_;
  std::vector<PendingFrame> frames_;
  std::vector<PendingModule> modules_;
  model::Process process_;
  int headers_ = 0;
  uint32_t format_version_ = 0;
  std::map<uint32_t, model::Loss> losses_;  // by cause
};

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_DEFINITIONS_H_
