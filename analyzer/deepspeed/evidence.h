// SPDX-License-Identifier: Apache-2.0
//
// Rows of a trace, grouped and shown. Thread-safety: pure functions.
// Units: bytes.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_EVIDENCE_H_
#define DSTRACE_ANALYZER_DEEPSPEED_EVIDENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/deepspeed/measured.h"

namespace dstrace::deepspeed {

struct TagGroup {
  Tag tag = Tag::kOther;
  int64_t bytes = 0;
  std::vector<const MeasuredRow*> rows;  // largest first
};

Tag TagOf(const MeasuredRow& row);
Phase PhaseOf(const MeasuredRow& row);

// The rows of one phase and kind by tag, the largest group first. Pointers
// are into measured.
std::vector<TagGroup> GroupRows(const Measured& measured, Phase phase,
                                RowKind kind);

// The same rows less what stood there already when deepspeed.initialize
// returned, by stack: in training, what the phase itself brings. Rows that
// only stood get 0 bytes and stay, so that 0 is told from unknown.
std::vector<MeasuredRow> BeyondStanding(const Measured& measured, Phase phase,
                                        RowKind kind);

std::vector<TagGroup> GroupRows(const std::vector<MeasuredRow>& rows,
                                Phase phase, RowKind kind);

// nullptr when there is no such group.
const TagGroup* FindGroup(const std::vector<TagGroup>& groups, Tag tag);

// "12.34 GiB", "981 MiB".
std::string ShowGib(int64_t bytes);

// "_allgather_params < all_gather < wrapped_fn_to_apply": innermost first,
// shortened to the frames that tell.
std::string ShowStack(const std::vector<std::string>& frames);

// The largest rows of a group as lines of evidence.
std::vector<std::string> ShowRows(const TagGroup& group, size_t most = 3);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_EVIDENCE_H_
