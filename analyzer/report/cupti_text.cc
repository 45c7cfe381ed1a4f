// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/cupti_text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analyzer/model/cupti_check.h"
#include "analyzer/report/format.h"

namespace dstrace::report {
namespace {

using model::CuptiCheck;

struct Row {
  const char* name;
  CuptiCheck::Sum cupti;
  CuptiCheck::Sum hooks;
};

// The kinds of memory that both can see.
std::vector<Row> Rows(const CuptiCheck& check) {
  return {{"device memory", check.cupti.device, HooksOnDevice(check)},
          {"managed memory", check.cupti.managed, check.hooks.managed},
          {"pinned or registered host memory", check.cupti.pinned,
           check.hooks.pinned},
          {"arrays", check.cupti.array, check.hooks.array}};
}

std::string SumText(const CuptiCheck::Sum& sum) {
  return absl::StrCat(Count(sum.count), " (", Bytes(sum.bytes), ")");
}

std::string RowText(const Row& row) {
  if (row.cupti == row.hooks) {
    return absl::StrCat(row.name, " ", SumText(row.cupti));
  }
  return absl::StrCat(row.name, " ", SumText(row.cupti), " against ",
                      SumText(row.hooks));
}

// 130001 is CUDA 13.0; before 13 CUPTI counts its releases otherwise.
std::string VersionText(uint32_t version) {
  if (version < 100000) return absl::StrCat("API ", version);
  return absl::StrCat(version / 10000, ".", version / 100 % 100);
}

}  // namespace

bool CuptiAgrees(const CuptiCheck& check) {
  for (const auto& [cupti, hooks] :
       {std::pair{check.cupti.managed, check.hooks.managed},
        std::pair{check.cupti.pinned, check.hooks.pinned},
        std::pair{check.cupti.array, check.hooks.array}}) {
    if (!(cupti == hooks)) return false;
  }
  return DeviceMemoryAgrees(check) && check.dropped == 0 && check.unknown == 0;
}

std::vector<std::string> CuptiNotes(const CuptiCheck& check) {
  std::vector<std::string> notes;
  const CuptiCheck::Sums& hooks = check.hooks;
  if (check.unreported.count > 0) {
    notes.push_back(absl::StrCat(
        "CUPTI reports ", Count(hooks.mapped.count - check.unreported.count),
        " of ", Count(hooks.mapped.count), " mappings"));
  } else if (hooks.mapped.count > 0) {
    notes.push_back(
        absl::StrCat("of the device memory, mappings ", SumText(hooks.mapped)));
  }
  if (hooks.opened.count > 0) {
    notes.push_back(absl::StrCat(
        "memory of other processes ", Count(hooks.opened.count),
        check.opened_unsized > 0 ? ", whose size only CUPTI knows" : ""));
  }
  if (hooks.graphs.count > 0) {
    notes.push_back(absl::StrCat(
        "graphs' memory ", Bytes(hooks.graphs.bytes),
        DeviceMemoryAgrees(check) &&
                check.cupti.device.count > HooksOnDevice(check).count
            ? ", which CUPTI counts in more pieces"
            : ""));
  }
  return notes;
}

std::string CuptiText(const CuptiCheck& check) {
  if (!check.ran) return "";
  uint64_t cupti = 0;
  uint64_t hooks = 0;
  std::vector<std::string> parts;
  for (const Row& row : Rows(check)) {
    cupti += row.cupti.count;
    hooks += row.hooks.count;
    if (row.cupti.count + row.hooks.count > 0) parts.push_back(RowText(row));
  }
  std::string out =
      absl::StrCat("CUPTI ", VersionText(check.version), " saw ", Count(cupti),
                   " allocations, hooks saw ", Count(hooks));
  if (!parts.empty()) absl::StrAppend(&out, ": ", absl::StrJoin(parts, ", "));
  for (const std::string& note : CuptiNotes(check)) {
    absl::StrAppend(&out, "; ", note);
  }
  if (check.dropped > 0) {
    absl::StrAppend(&out, "; CUPTI lost ", Count(check.dropped), " records");
  }
  if (check.unknown > 0) {
    absl::StrAppend(&out, "; ", Count(check.unknown),
                    " records were not understood");
  }
  if (check.stopped) {
    absl::StrAppend(&out, "; until the program used CUPTI itself");
  }
  return out;
}

}  // namespace dstrace::report
