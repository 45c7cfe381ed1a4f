// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/json_values.h"

#include <utility>

#include "analyzer/report/cupti_text.h"
#include "analyzer/report/header_text.h"

namespace dstrace::report {
namespace {

const char* EndName(model::EndKind kind) {
  switch (kind) {
    case model::EndKind::kKilled:
      return "killed";
    case model::EndKind::kExit:
      return "exit";
    case model::EndKind::kFastExit:
      return "fast_exit";
    case model::EndKind::kSignal:
      return "signal";
    case model::EndKind::kExec:
      return "exec";
    case model::EndKind::kAbort:
      return "abort";
    case model::EndKind::kStillRunning:
      return "still_running";
  }
  return "unknown";
}

JsonValue SumObject(const model::CuptiCheck::Sum& sum) {
  return {{"count", sum.count}, {"bytes", sum.bytes}};
}

JsonValue SumsObject(const model::CuptiCheck::Sums& sums) {
  JsonValue out = JsonValue::object();
  for (const auto& [name, sum] :
       {std::pair{"device", sums.device}, std::pair{"managed", sums.managed},
        std::pair{"pinned", sums.pinned}, std::pair{"array", sums.array},
        std::pair{"physical", sums.physical}, std::pair{"mapped", sums.mapped},
        std::pair{"opened", sums.opened}, std::pair{"graphs", sums.graphs}}) {
    out[name] = SumObject(sum);
  }
  return out;
}

}  // namespace

const char* LayerName(model::Layer layer) {
  switch (layer) {
    case model::Layer::kTensor:
      return "tensor";
    case model::Layer::kDevice:
      return "device";
    case model::Layer::kHostPinned:
      return "host_pinned";
    case model::Layer::kManaged:
      return "managed";
    case model::Layer::kCode:
      return "code";
    case model::Layer::kManagedOnDevice:
      return "managed_on_device";
  }
  return "unknown";
}

JsonValue OrNull(uint64_t value) {
  return value == 0 ? JsonValue(nullptr) : JsonValue(value);
}

JsonValue ProcessObject(const model::Process& process) {
  JsonValue out{{"pid", process.pid},
                {"parent_pid", process.parent_pid},
                {"host", process.host},
                {"command", process.command},
                {"executable", process.executable},
                {"rank", nullptr},
                {"world_size", nullptr},
                {"environment", process.environment},
                {"properties", process.properties},
                {"stacks", process.stacks_mode},
                {"dstrace_version", process.dstrace_version},
                {"crash_proof", process.crash_proof},
                {"start_real_ns", process.start_real_ns},
                {"duration_ns", process.duration_ns},
                {"end",
                 {{"kind", EndName(process.end)},
                  {"status", process.end_status},
                  {"text", EndText(process)}}}};
  if (process.rank.has_value()) out["rank"] = *process.rank;
  if (process.world_size.has_value()) out["world_size"] = *process.world_size;
  return out;
}

JsonValue LedgerObject(const model::Ledger& ledger) {
  return {{"device_total", ledger.device_total},
          {"device_used", ledger.device_used},
          {"device_used_known", ledger.device_used_known},
          {"sample_age_ns", ledger.sample_age_ns},
          {"torch_live", ledger.torch_live},
          {"torch_reserved", ledger.torch_reserved},
          {"torch_cached", ledger.torch_cached},
          {"torch_stream_pending", ledger.torch_stream_pending},
          {"libraries", ledger.libraries},
          {"residual", ledger.residual},
          {"context", ledger.context},
          {"context_includes_others", ledger.context_includes_others},
          {"before_first_context", ledger.before_first_context},
          {"code", ledger.code},
          {"managed_on_device", ledger.managed_on_device},
          {"managed_extent", ledger.managed_extent},
          {"held_elsewhere", ledger.held_elsewhere},
          {"unexplained", model::Unexplained(ledger)},
          {"host_pinned", ledger.host_pinned},
          {"managed", ledger.managed}};
}

JsonValue SnapshotObject(const model::Snapshot& snapshot) {
  return {{"name", snapshot.name},
          {"time_ns", snapshot.time_ns},
          {"ledger", LedgerObject(snapshot.ledger)}};
}

JsonValue TimelineObject(const model::Device& device) {
  JsonValue points = JsonValue::array();
  for (const model::TimelinePoint& point : device.timeline) {
    points.push_back({point.time_ns, point.device_used, point.torch_reserved,
                      point.torch_live});
  }
  return {
      {"columns", {"time_ns", "device_used", "torch_reserved", "torch_live"}},
      {"points", points}};
}

JsonValue CuptiObject(const model::CuptiCheck& check) {
  return {{"version", check.version},
          {"agrees", CuptiAgrees(check)},
          {"stopped_early", check.stopped},
          {"cupti", SumsObject(check.cupti)},
          {"hooks", SumsObject(check.hooks)},
          {"device_agrees", DeviceMemoryAgrees(check)},
          {"hooks_on_device", SumObject(HooksOnDevice(check))},
          {"unreported_mappings", SumObject(check.unreported)},
          {"notes", CuptiNotes(check)},
          {"pool_operations", check.pool_operations},
          {"dropped", check.dropped},
          {"unknown", check.unknown}};
}

}  // namespace dstrace::report
