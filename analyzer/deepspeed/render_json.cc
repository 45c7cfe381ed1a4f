// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/render.h"
#include "nlohmann/json.hpp"

namespace dstrace::deepspeed {
namespace {

using Json = nlohmann::ordered_json;

Json Maybe(const std::optional<int64_t>& bytes) {
  return bytes ? Json(*bytes) : Json(nullptr);
}

Json ToJson(const Finding& finding) {
  return Json{{"severity", SeverityName(finding.severity)},
              {"rule", finding.rule},
              {"line", finding.place.line},
              {"column", finding.place.column},
              {"key", finding.place.key},
              {"message", finding.message},
              {"change", finding.change},
              {"bytes", Maybe(finding.bytes)},
              {"saving_bytes", Maybe(finding.saving_bytes)},
              {"evidence", finding.evidence},
              {"source", finding.source}};
}

Json ToJson(const SizeRow& row) {
  return Json{{"key", row.key},           {"line", row.line},
              {"elements", row.elements}, {"bytes", row.bytes},
              {"origin", row.origin},     {"meaning", row.meaning}};
}

Json ToJson(const ComparedRow& row) {
  return Json{{"phase", PhaseName(row.phase)},
              {"name", row.name},
              {"expected_bytes", Maybe(row.expected)},
              {"measured_bytes", Maybe(row.measured)},
              {"evidence", row.evidence}};
}

const char* WhereName(Where where) {
  switch (where) {
    case Where::kPinnedHost:
      return "pinned_host";
    case Where::kHost:
      return "host";
    case Where::kDevice:
      break;
  }
  return "device";
}

Json ToJson(const ExpectedMemory& expected) {
  Json rows = Json::array();
  for (const ExpectedRow& row : expected.rows) {
    rows.push_back(Json{{"phase", PhaseName(row.phase)},
                        {"tag", TagId(row.tag)},
                        {"name", row.name},
                        {"bytes", row.bytes},
                        {"persistent", row.persistent},
                        {"where", WhereName(row.where)},
                        {"upper_bound", row.upper_bound},
                        {"lower_bound", row.lower_bound},
                        {"formula", row.formula},
                        {"code", row.code}});
  }
  return Json{{"params", expected.params},
              {"shard_elements", expected.shard_elements},
              {"sub_group_elements", expected.sub_group_elements},
              {"load_live_bytes", expected.load_live},
              {"load_peak_bytes", expected.load_peak},
              {"optimizer_build_peak_bytes", expected.optimizer_build_peak},
              {"initialize_peak_bytes", expected.initialize_peak},
              {"initialize_steady_bytes", expected.initialize_steady},
              {"training_peak_bytes", expected.training_peak},
              {"step_peak_bytes", expected.step_peak},
              {"step_steady_bytes", expected.step_steady},
              {"sub_group_at_least", expected.sub_group_at_least},
              {"pinned_load_bytes", expected.pinned_load},
              {"pinned_steady_bytes", expected.pinned_steady},
              {"host_steady_bytes", expected.host_steady},
              {"communicators", expected.communicators},
              {"deepspeed_estimate_bytes", expected.estimate.no_offload},
              {"deepspeed_estimate_optimizer_offload_bytes",
               expected.estimate.optimizer_offload},
              {"notes", expected.notes},
              {"rows", rows}};
}

template <typename Item>
Json List(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(ToJson(item));
  return list;
}

}  // namespace

std::string RenderJson(const RenderInputs& inputs) {
  Json json{{"verdict", ValidityName(inputs.verdict.validity)},
            {"headline", inputs.verdict.headline},
            {"file", inputs.file},
            {"deepspeed_version", FormatVersion(inputs.options.version)},
            {"world_size", inputs.options.world_size},
            {"valid_json", inputs.config.valid_json},
            {"zero_stage", inputs.config.settings.stage},
            {"reasons", inputs.verdict.reasons},
            {"findings", List(inputs.verdict.findings)},
            {"sizes", List(inputs.config.sizes)},
            {"comparison", List(inputs.verdict.rows)}};
  if (!inputs.trace.empty()) json["trace"] = inputs.trace;
  if (inputs.expected != nullptr) json["expected"] = ToJson(*inputs.expected);
  // Text from the config may be any bytes; JSON may not.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dstrace::deepspeed
