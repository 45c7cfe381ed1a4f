// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/trace_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/event_log.h"
#include "tests/support/trace_builder.h"

namespace dstrace::log {
namespace {

using dstrace::testing::EventLog;
using dstrace::testing::kCuda0;
using dstrace::testing::TraceBuilder;
using dstrace::testing::WriteFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TraceReaderTest : public ::testing::Test {
 protected:
  TraceReaderTest() {
    path_ = ::testing::TempDir() + "trace_reader_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
            std::to_string(getpid()) + ".pb";
  }
  ~TraceReaderTest() override { std::filesystem::remove_all(path_); }

  std::unique_ptr<TraceReader> Open(const std::string& bytes) {
    WriteFile(path_, bytes);
    auto reader = TraceReader::Open(path_);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.ok() ? *std::move(reader) : nullptr;
  }
  std::vector<std::string> Events(const TraceReader& reader) {
    EventLog log;
    const absl::Status status = reader.Replay(log);
    EXPECT_TRUE(status.ok()) << status;
    return log.lines;
  }
  std::string ErrorOf(const std::string& bytes) {
    WriteFile(path_, bytes);
    return ErrorOfPath();
  }
  std::string ErrorOfPath() {
    const auto reader = TraceReader::Open(path_);
    EXPECT_FALSE(reader.ok());
    return std::string(reader.status().message());
  }

  std::string path_;
};

TEST_F(TraceReaderTest, MergesThreadsByTime) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(10), 0, 0x1000, 1);
  trace.thread(8).Alloc(trace.At(20), 0, 0x2000, 2);
  trace.thread(7).Free(trace.At(30), 0x1000, 1);
  trace.thread(8).Free(trace.At(40), 0x2000, 2);

  EXPECT_THAT(Events(*Open(trace.Bytes())),
              ElementsAre("10 7 alloc 1000+1 device 100 stack 0",
                          "20 8 alloc 2000+2 device 100 stack 0",
                          "30 7 free 1000+1 device 100",
                          "40 8 free 2000+2 device 100"));
}

TEST_F(TraceReaderTest, RecentTensorsFollowThePayload) {
  TraceBuilder trace;
  const uint32_t stack = trace.NativeStack({"/lib/a.so"});
  trace.thread(7).Alloc(trace.At(10), 0, 0x1000, 512);
  trace.thread(7).Recent(trace.At(20), stack, 0x2000, 1024);
  trace.thread(8).Recent(trace.At(25), 0, 0x3000, 512);
  trace.thread(7).Recent(trace.At(30), 0, 0x1000, -512);

  const auto reader = Open(trace.Bytes());
  EXPECT_THAT(Events(*reader),
              ElementsAre("10 7 alloc 1000+512 device 100 stack 0",
                          "20 7 alloc 2000+1024 device 100 stack 1",
                          "25 8 alloc 3000+512 device 100 stack 0",
                          "30 7 free 1000+512 device 100"));
  EXPECT_EQ(reader->facts().event_count, 4u);
  EXPECT_THAT(reader->facts().notes, IsEmpty());
}

TEST_F(TraceReaderTest, RecentTensorsOfAnOlderFileAreSixteenAtMost) {
  TraceBuilder trace;
  trace.set_recent_slots(16);
  for (uint64_t i = 1; i <= 16; ++i) {
    trace.thread(7).Recent(trace.At(i), 0, 0x1000 * i, 512);
  }

  const auto events = Events(*Open(trace.Bytes()));
  ASSERT_EQ(events.size(), 16u);
  EXPECT_EQ(events.back(), "16 7 alloc 10000+512 device 100 stack 0");
}

TEST_F(TraceReaderTest, ARecentTensorOfAnotherBatchDoesNotCount) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(10), 0, 0x1000, 512);
  trace.thread(7).Recent(trace.At(20), 0, 0x2000, 512);
  trace.thread(7).Recent(trace.At(5), 0, 0x3000, 512, -4);  // taken over before
  trace.thread(7).Recent(trace.At(30), 0, 0x4000, 512);  // behind one of those
  // Only the last slots were needed.
  trace.thread(8).Recent(trace.At(1), 0, 0x5000, 512, -4);
  trace.thread(8).Recent(trace.At(40), 0, 0x6000, 512);

  EXPECT_THAT(Events(*Open(trace.Bytes())),
              ElementsAre("10 7 alloc 1000+512 device 100 stack 0",
                          "20 7 alloc 2000+512 device 100 stack 0",
                          "40 8 alloc 6000+512 device 100 stack 0"));
}

TEST_F(TraceReaderTest, RecentTensorsOfADamagedChunkAreNotGuessed) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(10), 0, 0x1000, 512);
  trace.thread(7).Raw("\x0a\x01\xff");
  trace.thread(7).Recent(trace.At(20), 0, 0x2000, 512);

  const auto reader = Open(trace.Bytes());
  EXPECT_THAT(Events(*reader),
              ElementsAre("10 7 alloc 1000+512 device 100 stack 0"));
  EXPECT_THAT(reader->facts().notes, ElementsAre(HasSubstr("damaged record")));
}

TEST_F(TraceReaderTest, TheTimeOfARecentTensorNeverGoesBack) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(50), 0, 0x1000, 512);
  trace.thread(7).Recent(trace.At(40), 99, 0x2000, 512);

  EXPECT_THAT(Events(*Open(trace.Bytes())),
              ElementsAre("50 7 alloc 1000+512 device 100 stack 0",
                          "50 7 alloc 2000+512 device 100 stack 0"));
}

TEST_F(TraceReaderTest, EventsOfOneInstantKeepTheOrderOfTheirChunks) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(10), 0, 0x1000, 1);
  trace.thread(7).Close();
  trace.thread(7).Free(trace.At(10), 0x1000, 1);

  EXPECT_THAT(Events(*Open(trace.Bytes())),
              ElementsAre("10 7 alloc 1000+1 device 100 stack 0",
                          "10 7 free 1000+1 device 100"));
}

TEST_F(TraceReaderTest, AThreadThatFillsManyChunksComesBackWhole) {
  TraceBuilder trace;
  constexpr uint64_t kPairs = 50000;
  for (uint64_t i = 0; i < kPairs; ++i) {
    trace.thread(7).Alloc(trace.At(2 * i), 0, 0x1000 * (i + 1), i);
    trace.thread(7).Free(trace.At(2 * i + 1), 0x1000 * (i + 1), i);
  }
  const auto reader = Open(trace.Bytes());

  const std::vector<std::string> events = Events(*reader);

  EXPECT_GT(reader->chunks().size(), 5U);
  ASSERT_EQ(events.size(), 2 * kPairs);
  EXPECT_EQ(reader->facts().event_count, 2 * kPairs);
  EXPECT_EQ(events[2 * kPairs - 1], "99999 7 free c350000+49999 device 100");
}

TEST_F(TraceReaderTest, LiteralsPastTheDictionaryGetNoSlot) {
  TraceBuilder trace;
  // 4096 slots are given to small literals, then one more block is named twice.
  for (uint64_t i = 0; i < 4097; ++i) {
    trace.thread(7).Alloc(trace.At(i), 0, i + 1, 1);
  }
  trace.thread(7).Free(trace.At(5000), 4097, 1);
  trace.thread(7).Free(trace.At(5001), 4096, 1);

  const std::vector<std::string> events = Events(*Open(trace.Bytes()));

  ASSERT_EQ(events.size(), 4099U);
  EXPECT_EQ(events[4097], "5000 7 free 1001+1 device 100");
  EXPECT_EQ(events[4098], "5001 7 free 1000+1 device 100");
}

TEST_F(TraceReaderTest, DefinitionsMayComeInAnyOrderAndFromAnyChunk) {
  TraceBuilder trace;
  const uint32_t frame = trace.NativeFrame("/lib/libfoo.so.1", "foo_alloc");
  const uint32_t python = trace.PythonFrame("train", "train.py", 12);
  const uint32_t stack = trace.Stack({frame, python}, true);
  // A stack whose frame is defined later, in another chunk.
  proto::Records late;
  auto* const early_stack = late.add_stack();
  early_stack->set_id(stack + 1);
  early_stack->add_frame(python + 1);
  trace.thread(9).Define(late);
  trace.thread(1).Close();
  trace.PythonFrame("later", "later.py", 3);
  trace.thread(7).Alloc(trace.At(1), stack, 0x1000, 1);
  trace.thread(7).Alloc(trace.At(2), stack + 1, 0x2000, 1);

  const auto reader = Open(trace.Bytes());

  const model::Stacks& stacks = reader->facts().stacks;
  ASSERT_EQ(stacks.stacks.size(), 3U);
  EXPECT_TRUE(stacks.stacks[stack].truncated);
  ASSERT_EQ(stacks.stacks[stack].frames.size(), 2U);
  const model::Frame& native = stacks.frames[stacks.stacks[stack].frames[0]];
  EXPECT_EQ(native.name, "foo_alloc");
  EXPECT_EQ(native.name_offset, 4U);
  EXPECT_EQ(stacks.modules[static_cast<size_t>(native.module)].path,
            "/lib/libfoo.so.1");
  const model::Frame& top = stacks.frames[stacks.stacks[stack + 1].frames[0]];
  EXPECT_EQ(top.name, "later");
  EXPECT_EQ(top.file, "later.py");
  EXPECT_EQ(top.line, 3U);
  EXPECT_THAT(reader->facts().notes, IsEmpty());
}

TEST_F(TraceReaderTest, IdsWithoutADefinitionReadAsNothing) {
  TraceBuilder trace;
  proto::Records records;
  auto* const stack = records.add_stack();
  stack->set_id(1);
  stack->add_frame(4000000000);
  trace.thread(1).Define(records);
  trace.thread(7).Alloc(trace.At(1), 77, 0x1000, 1);

  const auto reader = Open(trace.Bytes());

  const model::Stacks& stacks = reader->facts().stacks;
  EXPECT_LT(stacks.stacks[1].frames[0], stacks.frames.size());
  EXPECT_THAT(Events(*reader),
              ElementsAre("1 7 alloc 1000+1 device 100 stack 0"));
}

TEST_F(TraceReaderTest, IdsThatNoSuchFileCouldHoldAreDamage) {
  TraceBuilder trace;
  proto::Records records;
  records.add_string()->set_id(UINT32_MAX);
  trace.thread(7).Alloc(trace.At(1), 0, 0x1000, 1);
  trace.thread(7).Define(records);
  trace.thread(7).Alloc(trace.At(2), 0, 0x2000, 1);

  const auto reader = Open(trace.Bytes());

  EXPECT_THAT(Events(*reader),
              ElementsAre("1 7 alloc 1000+1 device 100 stack 0"));
  EXPECT_THAT(reader->facts().notes, ElementsAre(HasSubstr("damaged record")));
}

TEST_F(TraceReaderTest, TellsWhatTheProcessWas) {
  TraceBuilder trace(false);
  proto::Records records;
  auto* const header = records.add_header();
  *header = TraceBuilder::DefaultHeader();
  for (const auto& [name, value] :
       {std::pair("RANK", "3"), std::pair("WORLD_SIZE", "8")}) {
    auto* const variable = header->add_environment();
    variable->set_name(name);
    variable->set_value(value);
  }
  auto* const gpu = records.add_gpu();
  gpu->set_index(2);
  gpu->set_name("NVIDIA H200");
  gpu->set_total_bytes(150);
  for (const char* const version : {"2.0", "2.11"}) {
    auto* const property = records.add_property();
    property->set_name("torch.version");
    property->set_value(version);
  }
  trace.thread(1).Define(records);
  proto::End end;
  end.set_kind(proto::End::SIGNAL);
  end.set_status(11);
  trace.thread(1).Add(trace.At(5'000), end);

  const auto reader = Open(trace.Bytes());

  const model::Process& process = reader->facts().process;
  EXPECT_EQ(process.pid, 4242U);
  EXPECT_EQ(process.host, "node7.test");
  EXPECT_THAT(process.command, ElementsAre("python", "train.py"));
  EXPECT_EQ(process.rank, 3);
  EXPECT_EQ(process.world_size, 8);
  ASSERT_EQ(process.gpus.size(), 1U);
  EXPECT_EQ(process.gpus[0].index, 2);
  EXPECT_EQ(process.gpus[0].total_bytes, 150U);
  EXPECT_EQ(process.properties.at("torch.version"), "2.11");
  EXPECT_EQ(process.duration_ns, 5'000U);
  EXPECT_EQ(process.end, model::EndKind::kSignal);
  EXPECT_EQ(process.end_status, 11);
}

TEST_F(TraceReaderTest, ATraceWithoutEndWasKilled) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(1), 0, 0x1000, 1);

  EXPECT_EQ(Open(trace.Bytes())->facts().process.end, model::EndKind::kKilled);
}

TEST_F(TraceReaderTest, ATraceThatALivingProcessHasOpenIsStillRunning) {
  TraceBuilder trace(false);
  proto::Records records;
  auto* const header = records.add_header();
  *header = TraceBuilder::DefaultHeader();
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  header->set_host(host);
  header->set_pid(static_cast<uint32_t>(getpid()));
  trace.thread(1).Define(records);
  trace.thread(1).Alloc(trace.At(1), 0, 0x1000, 1);

  // The reader itself has the file open.
  EXPECT_EQ(Open(trace.Bytes())->facts().process.end,
            model::EndKind::kStillRunning);
}

TEST_F(TraceReaderTest, NamesThatAreNotUtf8AreRepaired) {
  // Header { format_version: 1, command: "a\xff\xc3\xa9" }
  TraceBuilder trace(false);
  trace.thread(1).Raw(std::string("\x62\x08\x08\x01\x32\x04\x61\xff\xc3\xa9"));
  trace.thread(1).Alloc(trace.At(1), 0, 0x1000, 1);

  EXPECT_THAT(Open(trace.Bytes())->facts().process.command,
              ElementsAre("a?\xc3\xa9"));
}

TEST_F(TraceReaderTest, LossesAreTotalsPerCauseAndZeroIsNone) {
  TraceBuilder trace;
  proto::Records records;
  const auto add = [&](proto::Loss::Cause cause, uint64_t count,
                       const char* detail) {
    auto* const loss = records.add_loss();
    loss->set_cause(cause);
    loss->set_count(count);
    loss->set_detail(detail);
  };
  add(proto::Loss::DISK_FULL, 12, "");
  add(proto::Loss::NO_MEMORY, 0, "");
  add(proto::Loss::DISK_FULL, 0, "/scratch");
  trace.thread(1).Define(records);

  const auto reader = Open(trace.Bytes());

  ASSERT_EQ(reader->facts().losses.size(), 1U);
  EXPECT_EQ(reader->facts().losses[0].cause, "disk_full");
  EXPECT_EQ(reader->facts().losses[0].count, 12U);
  EXPECT_EQ(reader->facts().losses[0].detail, "/scratch");
}

TEST_F(TraceReaderTest, EveryFieldOfEveryMessageArrives) {
  TraceBuilder trace;
  proto::DeviceEvent device;
  device.set_kind(proto::DeviceEvent::MAP);
  device.set_api(trace.String("cuMemMap"));
  device.set_label(trace.String("cudaMalloc"));
  device.set_address(0x10);
  device.set_size(2);
  device.set_device(-1);
  device.set_handle(0x30);
  device.set_stream(0x40);
  device.set_pool(0x50);
  device.set_offset(6);
  device.set_flags(7);
  device.set_result(-8);
  device.set_free_bytes(9);
  device.set_total_bytes(10);
  trace.thread(1).Add(trace.At(1), device);
  proto::OutOfMemory oom;
  oom.set_device(kCuda0 + 1);
  oom.set_size(5);
  oom.set_allocated(6);
  oom.set_reserved(7);
  trace.thread(1).Add(trace.At(2), oom);
  proto::TorchTotals totals;
  totals.set_device(kCuda0);
  totals.set_allocated(3);
  totals.set_reserved(4);
  trace.thread(1).Add(trace.At(3), totals);
  proto::Mark mark;
  mark.set_kind(proto::Mark::PUSH);
  mark.set_name(trace.String("step"));
  mark.set_domain(trace.String("nvtx"));
  trace.thread(1).Add(trace.At(4), mark);

  EXPECT_THAT(
      Events(*Open(trace.Bytes())),
      ElementsAre("1 1 device-event kind 8 api cuMemMap label cudaMalloc 10+2 "
                  "device -1 handle 30 stream 40 pool 50 offset 6 flags 7 "
                  "result -8 free 9 total 10 stack 0",
                  "2 1 oom device 101 size 5 allocated 6 reserved 7 stack 0",
                  "3 1 totals device 100 allocated 3 reserved 4",
                  "4 1 mark kind 1 nvtx/step"));
}

TEST_F(TraceReaderTest, ReservedPagesAndZeroTailsAreNothing) {
  TraceBuilder trace;
  trace.Reserve(15);
  trace.thread(7).Alloc(trace.At(1), 0, 0x1000, 1);
  trace.Reserve(16);

  const auto reader = Open(trace.Bytes() + std::string(200000, '\0'));

  EXPECT_EQ(Events(*reader).size(), 1U);
  EXPECT_THAT(reader->facts().notes, IsEmpty());
}

// A program that is killed while it moves a full chunk leaves both.
TEST_F(TraceReaderTest, AChunkAndItsCopyAreOne) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(1), 0, 0x1000, 1);
  const std::string open = trace.Bytes();
  trace.thread(7).Alloc(trace.At(2), 0, 0x2000, 1);
  trace.thread(7).Close();
  const std::string closed = trace.Bytes();

  for (const std::string& bytes : {open + closed, closed + open}) {
    const auto reader = Open(bytes);
    EXPECT_EQ(Events(*reader).size(), 2U) << "the longer one counts";
    EXPECT_THAT(reader->facts().notes, IsEmpty());
  }
}

// The mapped chunk of a thread lies before those it held earlier.
TEST_F(TraceReaderTest, TheOrderOfChunksIsThatOfTheirNumbers) {
  TraceBuilder trace;
  proto::End end;
  end.set_kind(proto::End::EXIT);
  for (const int status : {1, 2}) {
    end.set_status(status);
    trace.thread(7).Add(trace.At(status), end);
    trace.thread(7).Close();
  }
  const std::string bytes = trace.Bytes();
  ASSERT_EQ(bytes.size(), 3U * 65536);
  const auto chunk = [&](size_t i) { return bytes.substr(i * 65536, 65536); };

  const auto reader = Open(chunk(0) + chunk(2) + chunk(1));

  EXPECT_EQ(reader->facts().process.end_status, 2) << "the last one";
}

TEST_F(TraceReaderTest, ChunksOfAnyLengthAreAccepted) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(1), 0, 0x1000, 1);
  trace.thread(8).Alloc(trace.At(2), 0, 0x2000, 1);

  const auto reader = Open(trace.CompactBytes());

  EXPECT_EQ(Events(*reader).size(), 2U);
  EXPECT_THAT(reader->facts().notes, IsEmpty());
}

TEST_F(TraceReaderTest, AnOverwrittenPageCostsItsChunkOnly) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(1), 0, 0x1000, 1);
  trace.thread(8).Alloc(trace.At(2), 0, 0x2000, 1);
  std::string bytes = trace.Bytes();
  for (size_t i = 0; i < 4096; ++i) bytes[65536 + i] = 'x';

  const auto reader = Open(bytes);

  EXPECT_THAT(Events(*reader),
              ElementsAre("2 8 alloc 2000+1 device 100 stack 0"));
  EXPECT_THAT(reader->facts().notes,
              ElementsAre(AllOf(HasSubstr("byte 65536"),
                                HasSubstr("65536 bytes skipped"))));
}

TEST_F(TraceReaderTest, ATraceWithoutEventsOpens) {
  const TraceBuilder trace;

  const auto reader = Open(trace.Bytes());

  EXPECT_EQ(reader->facts().event_count, 0U);
  EXPECT_THAT(Events(*reader), IsEmpty());
}

TEST_F(TraceReaderTest, AVisitorStopsTheReplay) {
  TraceBuilder trace;
  for (uint64_t i = 0; i < 10; ++i) {
    trace.thread(7 + i % 2).Alloc(trace.At(i), 0, 0x1000 * (i + 1), 1);
  }
  const auto reader = Open(trace.Bytes());
  EventLog log;
  log.stop_after = 3;

  EXPECT_TRUE(reader->Replay(log).ok());

  EXPECT_EQ(log.lines.size(), 3U);
}

TEST_F(TraceReaderTest, WhatIsWrittenAfterOpenIsNotSeen) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(1), 0, 0x1000, 1);
  const auto reader = Open(trace.Bytes());
  trace.thread(7).Free(trace.At(2), 0x1000, 1);
  trace.thread(8).Alloc(trace.At(3), 0, 0x2000, 1);
  WriteFile(path_, trace.Bytes());

  EXPECT_EQ(Events(*reader).size(), 1U);
  EXPECT_EQ(Events(*Open(trace.Bytes())).size(), 3U);
}

TEST_F(TraceReaderTest, AFileThatShrinksWhileItIsReadIsAnError) {
  TraceBuilder trace;
  trace.thread(7).Alloc(trace.At(1), 0, 0x1000, 1);
  trace.thread(7).Close();  // an open chunk is read when the file is opened
  const auto reader = Open(trace.Bytes());
  ASSERT_EQ(truncate(path_.c_str(), 65536 + 50), 0);
  EventLog log;

  const absl::Status status = reader->Replay(log);

  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path_), HasSubstr("byte 65586")));
}

TEST_F(TraceReaderTest, AFileThatIsNotThereSaysSo) {
  EXPECT_THAT(ErrorOfPath(),
              AllOf(HasSubstr(path_), HasSubstr("No such file")));
}

TEST_F(TraceReaderTest, ADirectorySaysSo) {
  std::filesystem::create_directory(path_);

  EXPECT_THAT(ErrorOfPath(), AllOf(HasSubstr(path_), HasSubstr("directory")));
}

TEST_F(TraceReaderTest, APipeSaysSo) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);

  EXPECT_THAT(ErrorOfPath(), HasSubstr("not a regular file"));
}

TEST_F(TraceReaderTest, AFileThatMayNotBeReadSaysSo) {
  WriteFile(path_, "x");
  std::filesystem::permissions(path_, std::filesystem::perms::none);
  // Root may read everything; nobody may not.
  const uid_t user = geteuid();
  if (user == 0) {
    ASSERT_EQ(seteuid(65534), 0);
  }

  EXPECT_THAT(ErrorOfPath(), HasSubstr("Permission denied"));

  ASSERT_EQ(seteuid(user), 0);
}

TEST_F(TraceReaderTest, AnEmptyFileSaysSo) {
  EXPECT_THAT(ErrorOf(""), AllOf(HasSubstr(path_), HasSubstr("empty")));
}

TEST_F(TraceReaderTest, AForeignFileSaysSo) {
  for (const std::string& bytes :
       {std::string("\nhello, this is text\n"), std::string("\x7f") + "ELF",
        std::string(100000, '\0'), std::string(100000, '\xff'),
        std::string("\x0a\x03xyz"), std::string("z")}) {
    EXPECT_THAT(ErrorOf(bytes), AllOf(HasSubstr(path_ + ": byte 0"),
                                      HasSubstr("not a dstrace trace")));
  }
}

TEST_F(TraceReaderTest, AnotherFormatVersionSaysSo) {
  TraceBuilder trace(false);
  proto::Records records;
  *records.add_header() = TraceBuilder::DefaultHeader();
  records.mutable_header(0)->set_format_version(7);
  trace.thread(1).Define(records);

  EXPECT_THAT(ErrorOf(trace.Bytes()),
              AllOf(HasSubstr(path_ + ": byte 46"),
                    HasSubstr("format version 7"), HasSubstr("version 1")));
}

TEST_F(TraceReaderTest, AFileOfReservedPagesHoldsNothing) {
  TraceBuilder trace(false);
  trace.Reserve(16);

  EXPECT_THAT(ErrorOf(trace.Bytes()), HasSubstr("before its first chunk"));
}

TEST_F(TraceReaderTest, AChunkWithoutAnythingCommittedHasNoHeader) {
  TraceBuilder trace(false);
  trace.thread(1).Raw("");

  EXPECT_THAT(ErrorOf(trace.Bytes()), HasSubstr("before its header"));
}

}  // namespace
}  // namespace dstrace::log
