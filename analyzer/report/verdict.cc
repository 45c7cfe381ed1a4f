// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/verdict.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analyzer/report/format.h"

namespace dstrace::report {
namespace {

using model::Ledger;

constexpr uint64_t kWorthNaming =
    32ull << 20;  // parts of the gap below it are "other"

// Device bytes as far as they are known.
uint64_t Used(const Ledger& ledger) {
  if (ledger.device_used_known) return ledger.device_used;
  uint64_t used = ledger.torch_reserved;
  for (const auto& [owner, bytes] : ledger.libraries) used += bytes;
  return used;
}

// "asked by train.py:12 in main via a -> b"
std::string Who(const attribution::Story& story) {
  if (story.via.empty()) return absl::StrCat("asked by ", story.asked_by);
  return absl::StrCat("asked by ", story.asked_by, " via ", story.via);
}

void Advise(const attribution::Story& story, const std::string& otherwise,
            std::vector<std::string>* out) {
  const std::string advice = story.rule == nullptr || story.rule->advice.empty()
                                 ? otherwise
                                 : story.rule->advice;
  if (!advice.empty()) out->push_back(absl::StrCat("Change: ", advice));
}

// What lies between nvidia-smi and torch's allocated bytes, largest first.
std::string Gap(const Ledger& ledger) {
  std::vector<std::pair<uint64_t, std::string>> parts;
  uint64_t small = 0;
  const auto add = [&](uint64_t bytes, const std::string& name) {
    if (bytes >= kWorthNaming) {
      parts.emplace_back(bytes, name);
    } else {
      small += bytes;
    }
  };
  add(ledger.torch_cached, "torch's cache");
  for (const auto& [owner, bytes] : ledger.libraries)
    add(bytes, OwnerName(owner));
  const int64_t named = model::NamedResidual(ledger);
  add(ledger.code, "CUDA's code and streams");
  add(ledger.managed_on_device, "managed memory");
  add(ledger.held_elsewhere, "freed memory that another process has open");
  if (ledger.residual > named) {
    add(static_cast<uint64_t>(ledger.residual - named),
        "CUDA context and other processes");
  }
  if (small > 0) parts.emplace_back(small, "smaller parts");
  std::stable_sort(
      parts.begin(), parts.end(),
      [](const auto& a, const auto& b) { return a.first > b.first; });
  return absl::StrJoin(parts, ", ", [](std::string* out, const auto& part) {
    absl::StrAppend(out, part.second, " ", Bytes(part.first));
  });
}

std::string Totals(const Ledger& ledger, bool tensors_seen) {
  const uint64_t used = Used(ledger);
  const std::string smi =
      ledger.device_used_known
          ? absl::StrCat("nvidia-smi would show ", Bytes(used))
          : absl::StrCat("nvidia-smi would show at least ", Bytes(used),
                         " (never sampled)");
  if (ledger.torch_reserved == 0) {
    return absl::StrCat(
        smi, "; torch holds nothing",
        Gap(ledger).empty() ? "." : absl::StrCat(": ", Gap(ledger), "."));
  }
  if (!tensors_seen) {
    return absl::StrCat(smi, "; torch took ", Bytes(ledger.torch_reserved),
                        " from the driver.");
  }
  const std::string torch =
      absl::StrCat("torch says ", Bytes(ledger.torch_live), " allocated, ",
                   Bytes(ledger.torch_reserved), " reserved");
  if (used <= ledger.torch_live) return absl::StrCat(smi, "; ", torch, ".");
  return absl::StrCat(smi, "; ", torch, ". The gap of ",
                      Bytes(used - ledger.torch_live), " is ", Gap(ledger),
                      ".");
}

// Bytes of rows that carry the same tag.
std::map<std::string, uint64_t> ByTag(const std::vector<Row>& rows) {
  std::map<std::string, uint64_t> sums;
  for (const Row& row : rows) {
    sums[row.story->rule != nullptr ? row.story->rule->tag : ""] += row.bytes;
  }
  return sums;
}

// The asker whose segments exceed most what its own tensors still use: what
// made torch reserve what is now cached. Null: nobody is known.
const Row* CacheMaker(const std::vector<Row>& growth,
                      const std::vector<Row>& holders) {
  std::map<std::string, uint64_t> live = ByTag(holders);
  std::map<std::string, uint64_t> reserved = ByTag(growth);
  const Row* best = nullptr;
  int64_t most = 0;
  for (const Row& row : growth) {
    const std::string tag =
        row.story->rule != nullptr ? row.story->rule->tag : "";
    const auto excess =
        static_cast<int64_t>(std::min(reserved[tag], row.bytes)) -
        static_cast<int64_t>(tag.empty() ? 0 : live[tag]);
    if (excess <= most) continue;
    most = excess;
    best = &row;
  }
  return best;
}

constexpr char kEmptyCache[] =
    "torch.cuda.empty_cache() returns what no stream uses any more.";

void CacheSentences(const Ledger& ledger, const Row* maker,
                    std::vector<std::string>* out) {
  std::string text = absl::StrCat(ledger.torch_cached * 2 > Used(ledger)
                                      ? "Most of it, "
                                      : "The largest part, ",
                                  Bytes(ledger.torch_cached), " (",
                                  Share(ledger.torch_cached, Used(ledger)),
                                  "), is torch's cache: no tensor uses it");
  if (ledger.torch_stream_pending > 0) {
    absl::StrAppend(&text, ", ", Bytes(ledger.torch_stream_pending),
                    " of it still waits for a stream");
  }
  absl::StrAppend(&text, ".");
  if (maker == nullptr) {
    out->push_back(text);
    out->push_back(absl::StrCat("Change: ", kEmptyCache));
    return;
  }
  absl::StrAppend(&text, " ", Bytes(maker->bytes),
                  maker->total > 0 ? " was reserved for " : " was freed by ",
                  LabelOf(*maker->story, "tensors freed since"), ", ",
                  Who(*maker->story), ".");
  out->push_back(text);
  Advise(*maker->story, kEmptyCache, out);
}

// The tag (or, untagged, the asker) that holds most; its bytes over all rows.
std::pair<const Row*, uint64_t> Largest(const std::vector<Row>& holders) {
  const std::map<std::string, uint64_t> sums = ByTag(holders);
  const Row* best = nullptr;
  uint64_t most = 0;
  for (const Row& row : holders) {
    const uint64_t bytes =
        row.story->rule != nullptr ? sums.at(row.story->rule->tag) : row.bytes;
    if (bytes > most) {
      most = bytes;
      best = &row;
    }
  }
  return {best, most};
}

void HolderSentences(const Ledger& ledger, const Row& row, uint64_t bytes,
                     std::vector<std::string>* out) {
  const uint64_t used = Used(ledger);
  const std::string opening =
      bytes * 2 > used ? "Most of it" : "The largest part";
  const std::string kind = row.layer == model::Layer::kTensor ? "tensors"
                           : row.layer == model::Layer::kCode
                               ? "CUDA's code and streams"
                           : row.layer == model::Layer::kManagedOnDevice
                               ? "managed memory"
                               : OwnerName(row.owner) + "'s own memory";
  // The row is the largest of its tag, not always nearly all of it.
  const std::string most =
      row.bytes * 10 < bytes * 9
          ? absl::StrCat("its largest piece, ", Bytes(row.bytes), ", ")
          : "";
  out->push_back(absl::StrCat(
      opening, ", ", Bytes(bytes), " (", Share(bytes, used), "), is ",
      LabelOf(*row.story, kind), ", ", most, Who(*row.story), "."));
  Advise(*row.story, "", out);
}

// torch's last out-of-memory error on this device.
void OutOfMemorySentences(View& view, int device,
                          std::vector<std::string>* out) {
  const model::Failure* last = nullptr;
  for (const model::Failure& failure : view.run().failures) {
    if (failure.api == "torch" && failure.device == device) last = &failure;
  }
  if (last == nullptr) return;
  const attribution::Story& story = view.Tell(last->stack);
  std::string text =
      absl::StrCat("OUT OF MEMORY at ", Duration(last->time_ns), ": ",
                   Bytes(last->size), " for ", LabelOf(story, "a tensor"));
  if (last->total_bytes > 0) {
    absl::StrAppend(&text, ", ", Bytes(last->free_bytes), " free",
                    last->free_bytes > last->size
                        ? " (so it was a limit that the program set)"
                        : "");
  }
  out->push_back(absl::StrCat(text, ", ", Who(story), "."));
  Advise(story, "", out);
}

}  // namespace

std::vector<std::string> Verdict(View& view, const model::Device& device,
                                 const model::Snapshot& snapshot) {
  const Ledger& ledger = snapshot.ledger;
  std::vector<std::string> out;
  OutOfMemorySentences(view, device.index, &out);
  const bool failed = !out.empty();
  if (Used(ledger) == 0 && ledger.torch_live == 0) return out;
  if (device.index >= 0) out.push_back(Totals(ledger, TensorsSeen(device)));
  const std::vector<Row> holders = Holders(view, device, snapshot);
  const auto [row, bytes] = Largest(holders);
  std::vector<std::string> finding;
  if (TensorsSeen(device) && ledger.torch_cached > bytes &&
      ledger.torch_cached * 4 > Used(ledger)) {
    const std::vector<Row> growth = TorchGrowth(view, device);
    const std::vector<Row> pending = PendingHolders(view, snapshot);
    const Row* maker = CacheMaker(growth, holders);
    if (maker == nullptr && !pending.empty()) maker = &pending.front();
    CacheSentences(ledger, maker, &finding);
  } else if (row != nullptr) {
    HolderSentences(ledger, *row, bytes, &finding);
  }
  // One advice is enough: after a failure, the one that avoids it.
  if (failed && finding.size() > 1) finding.resize(1);
  out.insert(out.end(), finding.begin(), finding.end());
  return out;
}

}  // namespace dstrace::report
