// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/rows_text.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "analyzer/report/format.h"

namespace dstrace::report {
namespace {

using attribution::Story;
using model::Failure;

constexpr size_t kTextColumn = 33;  // where "asked by" begins in each table

// "Adam states (ZeRO): _optimizer_step -> _init_group"; empty: nothing to say.
std::string Meaning(const Story& story, const std::string& owner) {
  std::string kind = LabelOf(story, owner == "torch" ? "" : OwnerName(owner));
  if (story.via.empty()) return kind;
  return kind.empty() ? absl::StrCat("via ", story.via)
                      : absl::StrCat(kind, ": ", story.via);
}

// The numbers of a row, already kTextColumn wide, then two lines of words.
std::string RowText(View& view, const std::string& numbers, const Row& row,
                    const RowsOptions& options, const Style& style) {
  const size_t room = options.width - kTextColumn;
  std::string out =
      absl::StrCat(style.Bold(numbers), Fit(row.story->asked_by, room), "\n");
  const std::string indent(kTextColumn, ' ');
  std::string meaning = Meaning(*row.story, row.owner);
  if (row.layer == model::Layer::kCode) {
    meaning = absl::StrCat("CUDA code, local memory, streams: ",
                           OwnerName(row.owner));
  }
  if (row.layer == model::Layer::kManagedOnDevice) {
    meaning = absl::StrCat("managed memory on the device (deduced): ",
                           OwnerName(row.owner));
  }
  if (!meaning.empty())
    absl::StrAppend(&out, indent, style.Dim(Fit(meaning, room)), "\n");
  if (options.stacks && !row.stacks.empty()) {
    absl::StrAppend(&out,
                    StackText(view, row.stacks.front(), 6, options.width));
  }
  return out;
}

std::string MoreText(size_t rows, uint64_t bytes) {
  return absl::StrCat(PadLeft(Bytes(bytes), 12), "  in ", Count(rows),
                      " smaller row", rows == 1 ? "" : "s", " (--top ",
                      "N shows more)\n");
}

// Prints the first rows with `numbers(row)` before each, then what is left.
// `extra(bytes)` is called before each row, and at the end with 0.
template <typename Numbers, typename Extras>
std::string Rows(View& view, const std::vector<Row>& rows,
                 const RowsOptions& options, const Style& style,
                 Numbers numbers, Extras extras) {
  std::string out;
  uint64_t rest = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i < options.top) {
      absl::StrAppend(&out, extras(rows[i].bytes));
      absl::StrAppend(&out,
                      RowText(view, numbers(rows[i]), rows[i], options, style));
    } else {
      rest += rows[i].bytes;
    }
  }
  if (rows.size() > options.top) {
    absl::StrAppend(&out, MoreText(rows.size() - options.top, rest));
  }
  return absl::StrCat(out, extras(0));
}

// Failures that differ in time only.
struct FailureGroup {
  const Failure* last = nullptr;
  size_t times = 0;
};

// A driver call that failed and that torch itself then reported.
bool IsCauseOfTorchError(const Failure& failure,
                         const std::vector<Failure>& failures) {
  return failure.api != "torch" &&
         std::any_of(failures.begin(), failures.end(), [&](const Failure& f) {
           return f.api == "torch" && f.device == failure.device &&
                  f.stack == failure.stack && f.stack != 0;
         });
}

std::vector<FailureGroup> GroupFailures(const std::vector<Failure>& failures) {
  std::map<std::tuple<std::string, int, uint64_t, int, model::StackId>, size_t>
      index;
  std::vector<FailureGroup> groups;
  for (const Failure& failure : failures) {
    if (IsCauseOfTorchError(failure, failures)) continue;
    const auto [it, added] =
        index.try_emplace(std::tuple(failure.api, failure.device, failure.size,
                                     failure.result, failure.stack),
                          groups.size());
    if (added) groups.emplace_back();
    groups[it->second].last = &failure;
    ++groups[it->second].times;
  }
  // torch's own reports say what the program felt; they come first.
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) {
                     return (a.last->api == "torch") > (b.last->api == "torch");
                   });
  return groups;
}

// The driver's numbers; the runtime's agree for these.
std::string ErrorName(int result) {
  switch (result) {
    case 1:
      return "error 1 (invalid value)";
    case 2:
      return "error 2 (out of memory)";
    case 3:
      return "error 3 (not initialized)";
    case 201:
      return "error 201 (invalid context)";
    case 700:
      return "error 700 (illegal address)";
    case 800:
      return "error 800 (not permitted)";
    case 801:
      return "error 801 (not supported)";
    case 900:
    case 901:
      return absl::StrCat("error ", result, " (during stream capture)");
    default:
      return absl::StrCat("error ", result);
  }
}

std::string FailureHead(const FailureGroup& group) {
  const Failure& failure = *group.last;
  const std::string who =
      failure.api == "torch"
          ? absl::StrCat("torch ran out of memory on GPU ", failure.device)
          : absl::StrCat(failure.api, " failed with ",
                         ErrorName(failure.result));
  std::string out = absl::StrCat("at ", Duration(failure.time_ns), " ", who,
                                 ": asked for ", Bytes(failure.size));
  if (failure.total_bytes > 0) {
    absl::StrAppend(&out, ", ", Bytes(failure.free_bytes), " of ",
                    Bytes(failure.total_bytes), " were free");
  }
  if (group.times > 1) absl::StrAppend(&out, " (", group.times, " times)");
  return out;
}

}  // namespace

std::string HoldersText(View& view, const std::vector<Row>& rows,
                        const std::vector<Extra>& extras, uint64_t whole,
                        const RowsOptions& options, const Style& style) {
  const auto numbers = [&](uint64_t bytes, const std::string& count) {
    return absl::StrCat(PadLeft(Bytes(bytes), 12),
                        PadLeft(Share(bytes, whole), 9), PadLeft(count, 10),
                        "  ");
  };
  std::vector<Extra> left = extras;
  std::stable_sort(left.begin(), left.end(), [](const auto& a, const auto& b) {
    return a.bytes > b.bytes;
  });
  size_t next = 0;
  const auto larger = [&](uint64_t bytes) {
    std::string out;
    for (; next < left.size() && left[next].bytes >= bytes; ++next) {
      if (left[next].bytes == 0) continue;
      absl::StrAppend(&out, style.Bold(numbers(left[next].bytes, "-")),
                      Fit(left[next].name, options.width - kTextColumn), "\n");
    }
    return out;
  };
  const std::string head =
      absl::StrCat(PadLeft("bytes", 12), PadLeft("share", 9),
                   PadLeft("count", 10), "  asked by");
  return absl::StrCat(
      style.Dim(head), "\n",
      Rows(
          view, rows, options, style,
          [&](const Row& row) { return numbers(row.bytes, Count(row.count)); },
          larger));
}

std::string GrowthText(View& view, const std::vector<Row>& rows,
                       const RowsOptions& options, const Style& style) {
  const std::string head =
      absl::StrCat(PadLeft("at peak", 12), PadLeft("in all", 12),
                   PadLeft("times", 7), "  asked by");
  const auto numbers = [](const Row& row) {
    return absl::StrCat(PadLeft(Bytes(row.bytes), 12),
                        PadLeft(Bytes(row.total), 12),
                        PadLeft(Count(row.count), 7), "  ");
  };
  return absl::StrCat(style.Dim(head), "\n",
                      Rows(view, rows, options, style, numbers,
                           [](uint64_t) { return std::string(); }));
}

std::string FailuresText(View& view, const std::vector<Failure>& failures,
                         const RowsOptions& options, const Style& style) {
  std::string out;
  const std::vector<FailureGroup> groups = GroupFailures(failures);
  for (size_t i = 0; i < groups.size() && i < options.top; ++i) {
    const Failure& failure = *groups[i].last;
    const Story& story = view.Tell(failure.stack);
    const auto line = [&](const std::string& text) {
      absl::StrAppend(&out, "    ", Wrap(text, options.width, "    "), "\n");
    };
    absl::StrAppend(
        &out, "  ",
        style.Red(Wrap(FailureHead(groups[i]), options.width, "    ")), "\n");
    if (failure.torch_reserved > 0) {
      line(absl::StrCat("torch then held ", Bytes(failure.torch_reserved),
                        ", of it ", Bytes(failure.torch_live), " in tensors"));
    }
    line(absl::StrCat("asked by ", story.asked_by));
    const std::string meaning = Meaning(story, "torch");
    if (!meaning.empty()) line(meaning);
    if (story.rule != nullptr && !story.rule->advice.empty()) {
      line(absl::StrCat("change: ", story.rule->advice));
    }
    if (options.stacks)
      absl::StrAppend(&out, StackText(view, failure.stack, 6, options.width));
  }
  if (groups.size() > options.top) {
    absl::StrAppend(&out, "  and ", groups.size() - options.top,
                    " more kinds of failure\n");
  }
  return out;
}

std::string StackText(View& view, model::StackId stack, size_t indent,
                      size_t width) {
  const auto& stacks = view.run().stacks.stacks;
  if (stack >= stacks.size()) return "";
  std::string out;
  for (const uint32_t frame : stacks[stack].frames) {
    absl::StrAppend(&out, std::string(indent, ' '),
                    Fit(view.frames()[frame].Label(), width - indent), "\n");
  }
  if (stacks[stack].truncated) {
    absl::StrAppend(&out, std::string(indent, ' '),
                    "(deeper frames were not recorded)\n");
  }
  return out;
}

}  // namespace dstrace::report
