// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/groups_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/report/format.h"

namespace dstrace::report {
namespace {

using model::Group;

uint64_t Held(const model::Device& device, const char* at, model::GroupId id) {
  const model::Snapshot* const snapshot = FindSnapshot(device, at);
  if (snapshot == nullptr) return 0;
  const auto found = snapshot->groups.find(id);
  return found == snapshot->groups.end() ? 0 : found->second;
}

std::string CommunicatorText(const Group& group) {
  std::string out =
      absl::StrFormat("communicator %s%08x", group.split ? "split off " : "",
                      group.unique_id & 0xffffffff);
  if (group.ranks > 0) {
    absl::StrAppend(&out, ", rank ", group.rank, " of ", group.ranks);
  }
  if (group.nccl_bytes > 0) {
    absl::StrAppend(&out, "; NCCL says ", Bytes(group.nccl_bytes));
  }
  return out;
}

std::string GraphText(const Group& group) {
  if (group.node_bytes == 0) return "graph";
  return absl::StrCat("graph; its memory nodes ", Bytes(group.node_bytes));
}

// "train.py:12 in main, 2.00 s to 9.00 s"
std::string OriginText(View& view, const Group& group) {
  std::string out = absl::StrCat(view.Tell(group.stack).asked_by, ", ",
                                 Duration(group.created_ns));
  if (group.ended_ns > 0) {
    absl::StrAppend(&out, " to ", Duration(group.ended_ns));
  }
  return out;
}

}  // namespace

std::vector<GroupRow> GroupRows(const model::Run& run,
                                const model::Device& device) {
  std::vector<GroupRow> rows;
  for (model::GroupId id = 1; id <= run.groups.size(); ++id) {
    const Group& group = run.groups[id - 1];
    if (!group.complete || group.device != device.index) continue;
    if (group.bytes == 0 && group.node_bytes == 0) continue;
    rows.push_back(
        {id, &group, Held(device, "peak", id), Held(device, "end", id)});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.group->bytes + a.group->node_bytes >
           b.group->bytes + b.group->node_bytes;
  });
  return rows;
}

std::string GroupsText(View& view, const model::Device& device,
                       const RowsOptions& options, const Style& style) {
  const std::vector<GroupRow> rows = GroupRows(view.run(), device);
  if (rows.empty()) return "";
  std::string out = absl::StrCat(
      style.Dim(absl::StrCat(PadLeft("at peak", 12), PadLeft("at end", 12),
                             PadLeft("taken", 12), "  by")),
      "\n");
  constexpr size_t kColumn = 38;
  const size_t room = options.width - kColumn;
  const size_t shown = std::min(options.top, rows.size());
  for (size_t i = 0; i < shown; ++i) {
    const Group& group = *rows[i].group;
    absl::StrAppend(
        &out,
        style.Bold(absl::StrCat(PadLeft(Bytes(rows[i].at_peak), 12),
                                PadLeft(Bytes(rows[i].at_end), 12),
                                PadLeft(Bytes(group.bytes), 12))),
        "  ",
        Fit(group.kind == Group::Kind::kCommunicator ? CommunicatorText(group)
                                                     : GraphText(group),
            room),
        "\n", std::string(kColumn, ' '), Fit(OriginText(view, group), room),
        "\n");
  }
  if (shown < rows.size()) {
    absl::StrAppend(&out, "  and ", rows.size() - shown,
                    " more (--top N shows more)\n");
  }
  return out;
}

}  // namespace dstrace::report
