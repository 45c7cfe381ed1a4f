// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/cupti_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
  return {{"device memory", check.cupti.device, check.hooks.device},
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
  for (const Row& row : Rows(check)) {
    if (!(row.cupti == row.hooks)) return false;
  }
  return check.dropped == 0 && check.unknown == 0;
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
  if (check.hooks.physical.count > 0) {
    absl::StrAppend(&out, "; only the hooks see virtual memory: ",
                    SumText(check.hooks.physical));
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
