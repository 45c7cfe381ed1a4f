// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/json.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analyzer/report/groups_text.h"
#include "analyzer/report/json_values.h"
#include "analyzer/report/verdict.h"

namespace dstrace::report {
namespace {

using Object = JsonValue;

class Writer {
 public:
  Writer(View& view, const JsonOptions& options)
      : view_(view), options_(options) {}

  Object Write() {
    const model::Run& run = view_.run();
    Object out{{"schema", "dstrace.report/1"},
               {"process", ProcessObject(run.process)},
               {"gpus", Object::array()},
               {"trace",
                {{"events", run.event_count},
                 {"bytes", run.file_bytes},
                 {"history_start_ns", run.history_start_ns},
                 {"log_limit", OrNull(run.log_limit_bytes)},
                 {"tracer_bytes", OrNull(run.tracer_bytes)},
                 {"lost", Object::array()},
                 {"notes", run.notes},
                 {"unmatched_tensor_frees", run.unmatched_tensor_frees},
                 {"unmatched_device_frees", run.unmatched_device_frees}}},
               {"devices", Object::array()},
               {"failures", Object::array()},
               {"marks", Object::array()}};
    for (const model::Gpu& gpu : run.process.gpus) {
      out["gpus"].push_back({{"index", gpu.index},
                             {"name", gpu.name},
                             {"uuid", gpu.uuid},
                             {"total_bytes", gpu.total_bytes}});
    }
    for (const model::Loss& loss : run.losses) {
      out["trace"]["lost"].push_back({{"cause", loss.cause},
                                      {"count", loss.count},
                                      {"detail", loss.detail}});
    }
    for (const model::Device& device : run.devices) {
      if (!options_.device.has_value() || *options_.device == device.index) {
        out["devices"].push_back(DeviceObject(device));
      }
    }
    for (const model::Failure& failure : run.failures) {
      out["failures"].push_back(FailureObject(failure));
    }
    for (const model::MarkPoint& mark : run.marks) {
      out["marks"].push_back({{"time_ns", mark.time_ns},
                              {"name", mark.name},
                              {"kind", mark.kind == 1   ? "push"
                                       : mark.kind == 2 ? "pop"
                                                        : "point"}});
    }
    if (run.cupti.ran) out["cupti"] = CuptiObject(run.cupti);
    return out;
  }

 private:
  Object DeviceObject(const model::Device& device) {
    Object out{{"index", device.index},
               {"total_bytes", DeviceTotal(view_.run(), device)},
               {"peak_time_ns", device.peak_time_ns},
               {"at", options_.at},
               {"verdict", Object::array()},
               {"snapshots", Object::array()}};
    for (const model::Snapshot& snapshot : device.snapshots) {
      out["snapshots"].push_back(SnapshotObject(snapshot));
    }
    const model::Snapshot* chosen = FindSnapshot(device, options_.at);
    if (chosen != nullptr) {
      out["verdict"] = Verdict(view_, device, *chosen);
      out["holders"] = Rows(Holders(view_, device, *chosen), false);
      out["beside"] = Rows(HostHolders(view_, *chosen), false);
      out["stream_pending"] = Rows(PendingHolders(view_, *chosen), false);
    }
    out["growth"] = Rows(TorchGrowth(view_, device), true);
    AddGroups(device, &out);
    out["timeline"] = TimelineObject(device);
    const model::TorchCheck& check = device.torch_check;
    out["torch_check"] = {
        {"reports", check.reports},
        {"mismatches", check.mismatches},
        {"largest_error", check.largest_error},
        {"reserved_reports", check.reserved_reports},
        {"reserved_mismatches", check.reserved_mismatches},
        {"largest_reserved_error", check.largest_reserved_error}};
    return out;
  }

  void AddGroups(const model::Device& device, Object* out) {
    (*out)["communicators"] = Object::array();
    (*out)["graphs"] = Object::array();
    for (const GroupRow& row : GroupRows(view_.run(), device)) {
      const model::Group& group = *row.group;
      const bool nccl = group.kind == model::Group::Kind::kCommunicator;
      Object item{{"handle", group.handle},
                  {"created_ns", group.created_ns},
                  {"ended_ns", OrNull(group.ended_ns)},
                  {"bytes_asked_for", group.bytes},
                  {"bytes_at_peak", row.at_peak},
                  {"bytes_at_end", row.at_end},
                  {"count", group.count}};
      if (nccl) {
        item["unique_id"] = group.unique_id;
        item["split_from"] = OrNull(group.split_from);
        item["nccl_bytes"] = OrNull(group.nccl_bytes);
        item["rank"] = group.rank;
        item["ranks"] = OrNull(group.ranks);
      } else {
        item["memory_node_bytes"] = group.node_bytes;
      }
      item.update(StoryObject(view_.Tell(group.stack)));
      (*out)[nccl ? "communicators" : "graphs"].push_back(std::move(item));
    }
  }

  Object StoryObject(const attribution::Story& story) {
    Object out{{"tag", nullptr},
               {"category", nullptr},
               {"label", nullptr},
               {"asked_by",
                {{"text", story.asked_by},
                 {"file", story.asked_file},
                 {"line", story.asked_line},
                 {"user_code", story.user_code}}},
               {"via", story.via}};
    if (story.rule != nullptr) {
      out["tag"] = story.rule->tag;
      out["category"] = story.rule->category;
      out["label"] = story.rule->label;
      out["explanation"] = story.rule->explanation;
      out["advice"] = story.rule->advice;
    }
    return out;
  }

  Object Rows(const std::vector<Row>& rows, bool growth) {
    Object out = Object::array();
    for (const Row& row : rows) {
      if (options_.top != 0 && out.size() >= options_.top) break;
      Object item{{"layer", LayerName(row.layer)}, {"owner", row.owner}};
      if (growth) {
        item["bytes_at_peak"] = row.bytes;
        item["bytes_at_end"] = row.at_end;
        item["bytes_allocated"] = row.total;
      } else {
        item["bytes"] = row.bytes;
      }
      item["count"] = row.count;
      item.update(StoryObject(*row.story));
      item["distinct_stacks"] = row.stacks.size();
      if (options_.stacks) AddStack(item, row.stacks.front());
      out.push_back(std::move(item));
    }
    return out;
  }

  void AddStack(Object& out, model::StackId id) {
    const auto& stacks = view_.run().stacks.stacks;
    out["stack"] = Stack(id);
    out["stack_truncated"] = id < stacks.size() && stacks[id].truncated;
  }

  Object Stack(model::StackId id) {
    Object out = Object::array();
    const model::Stacks& stacks = view_.run().stacks;
    if (id >= stacks.stacks.size()) return out;
    for (const uint32_t index : stacks.stacks[id].frames) {
      const model::FrameText& frame = view_.frames()[index];
      out.push_back({{"kind", frame.python ? "python" : "native"},
                     {"function", frame.function},
                     {"file", frame.file},
                     {"line", frame.line},
                     {"module", frame.module},
                     {"user_code", view_.IsUserCode(index)}});
    }
    return out;
  }

  Object FailureObject(const model::Failure& failure) {
    Object out{{"time_ns", failure.time_ns},
               {"api", failure.api},
               {"device", failure.device},
               {"size", failure.size},
               {"result", failure.result},
               {"free_bytes", failure.free_bytes},
               {"total_bytes", failure.total_bytes},
               {"torch_live", failure.torch_live},
               {"torch_reserved", failure.torch_reserved}};
    out.update(StoryObject(view_.Tell(failure.stack)));
    if (options_.stacks) AddStack(out, failure.stack);
    return out;
  }

  View& view_;
  const JsonOptions& options_;
};

}  // namespace

std::string Json(View& view, const JsonOptions& options) {
  // Names of the traced program may be broken UTF-8.
  return Writer(view, options)
             .Write()
             .dump(1, ' ', false, Object::error_handler_t::replace) +
         "\n";
}

std::string LedgerLine(const std::string& file, uint64_t start_ns,
                       const model::LedgerPoint& point) {
  const Object line{{"file", file},
                    {"time_ns", point.time_ns},
                    {"monotonic_ns", start_ns + point.time_ns},
                    {"device", point.device},
                    {"ledger", LedgerObject(point.ledger)}};
  return line.dump(-1, ' ', false, Object::error_handler_t::replace) + "\n";
}

std::string JsonArray(const std::vector<std::string>& reports) {
  return absl::StrCat("[\n", absl::StrJoin(reports, ","), "]\n");
}

}  // namespace dstrace::report
