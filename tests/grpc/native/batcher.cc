// Tests of the batcher alone; see test_batcher.py. Each runs in a separate process.

#include "seed_rl/grpc/native/transport/batcher.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"
#include "tests/grpc/native/batcher_fixture.h"
#include "tests/helpers/check.h"

namespace seed_rl::transport {
namespace {

// --- Replies.

// Replies that have not been sent keep the batch's results only if they are a large part of them.
void Borrowing() {
  for (const int64_t rows : {1, 255, 256}) {
    std::weak_ptr<const void> kept;
    auto fixture = std::make_unique<Fixture>(
        [&kept](const std::vector<Tensor>& arguments, Tensor* result) {
          *result = Bytes({arguments[0].dims[0], 4096}, 7);
          kept = result->owner;
          return Status();
        },
        1);
    fixture->Add(Bytes({rows, 1}, 0));
    fixture->Add(Bytes({1024 - rows, 1}, 0));
    fixture->Run();
    const std::shared_ptr<Answers> unsent = fixture->answers;
    fixture.reset();  // Its threads have no results any more.
    CHECK(kept.use_count() == (rows >= 256 ? 2 : 1));
  }
  // A result that is an argument would keep the memory of a full batch.
  std::weak_ptr<const void> kept;
  auto fixture = std::make_unique<Fixture>(
      [&kept](const std::vector<Tensor>& arguments, Tensor* result) {
        kept = arguments[0].owner;
        return Same(arguments, result);
      },
      kMiB);
  fixture->Add(Bytes({1, kMiB}, 1));
  fixture->Run();
  const std::shared_ptr<Answers> unsent = fixture->answers;
  fixture.reset();
  CHECK(kept.expired());
}

// --- Isolation of errors.

// Runs `bad.size()` calls as one batch; returns the number of runs.
int Isolate(const std::vector<char>& rows, const std::function<bool(const std::vector<char>&)>& bad,
            std::map<int, int> codes) {
  int runs = 0;
  Fixture fixture(
      [&](const std::vector<Tensor>& arguments, Tensor* result) {
        ++runs;
        const std::vector<char> rows(arguments[0].data, arguments[0].data + arguments[0].bytes);
        if (bad(rows)) return Status(Code::kFailedPrecondition, "bad");
        return Same(arguments, result);
      },
      1, true);
  for (const char row : rows) fixture.Add(Bytes({1}, row));
  fixture.Run();
  CHECK(fixture.answers->Codes() == codes);
  return runs;
}

void Isolation() {
  constexpr int kBad = static_cast<int>(Code::kFailedPrecondition);
  const auto contains = [](const std::vector<char>& rows, char row) {
    return std::find(rows.begin(), rows.end(), row) != rows.end();
  };
  const auto one_is_bad = [&](const std::vector<char>& rows) { return contains(rows, 1); };
  for (const size_t place : {0, 17, 63}) {
    std::vector<char> rows(64, 0);
    rows[place] = 1;
    CHECK(Isolate(rows, one_is_bad, {{0, 63}, {kBad, 1}}) <= 13);
  }
  CHECK(Isolate(std::vector<char>(64, 1), one_is_bad, {{kBad, 64}}) <= 96);
  CHECK(Isolate({0, 1}, one_is_bad, {{0, 1}, {kBad, 1}}) == 3);
  // Calls that fail only together do not fail.
  std::vector<char> rows(32, 0);
  rows[3] = 1;
  rows[29] = 2;
  Isolate(rows,
          [&](const std::vector<char>& rows) { return contains(rows, 1) && contains(rows, 2); },
          {{0, 32}});
}

// --- Failed allocations.

constexpr int kExhausted = static_cast<int>(Code::kResourceExhausted);

// There is no memory for a batch.
void MemoryForBatches() {
  Fixture fixture(Same, kMiB);
  FrameWriter writer(Kind::kCall, 1, 0, 1);
  writer.Add(Bytes({1, kMiB}, 1));
  const grpc::ByteBuffer message = writer.Finish();
  {
    ScarceMemory scarce;
    fixture.Add(message);
  }
  fixture.Run();
  fixture.Add(message);
  fixture.Run();
  CHECK((fixture.answers->Codes() == std::map<int, int>{{0, 1}, {kExhausted, 1}}));
}

// There is no memory for the strings of a call; its batch fails.
void MemoryForStrings() {
  Fixture fixture(
      [](const std::vector<Tensor>& arguments, Tensor* result) {
        *result = Bytes({arguments[0].dims[0]}, 0);
        return Status();
      },
      0);
  Tensor small, large;
  small.dtype = large.dtype = DType::kString;
  small.dims = large.dims = {1};
  small.strings = {"a"};
  large.strings = {std::string(64 * kMiB, 'a')};
  FrameWriter writer(Kind::kCall, 1, 0, 1);
  writer.Add(large);
  const grpc::ByteBuffer message = writer.Finish();
  fixture.Add(small);
  {
    ScarceMemory scarce;
    fixture.Add(message);
  }
  fixture.Run();
  fixture.Add(message);
  fixture.Run();
  CHECK((fixture.answers->Codes() == std::map<int, int>{{0, 1}, {kExhausted, 2}}));
}

// A function runs out of memory.
void MemoryForRuns() {
  std::atomic<bool> fail{true};
  Fixture fixture(
      [&fail](const std::vector<Tensor>& arguments, Tensor* result) {
        if (fail) throw std::bad_alloc();
        return Same(arguments, result);
      },
      1);
  fixture.Add(Bytes({1, 1}, 0));
  fixture.Add(Bytes({1, 1}, 0));
  fixture.Run();
  CHECK((fixture.answers->Codes() == std::map<int, int>{{kExhausted, 2}}));
  fail = false;
  fixture.Add(Bytes({1, 1}, 0));
  fixture.Run();
  CHECK((fixture.answers->Codes() == std::map<int, int>{{0, 1}, {kExhausted, 2}}));
}

// There is no memory for a reply.
void MemoryForReplies() {
  std::unique_ptr<ScarceMemory> scarce;
  Fixture fixture(
      [&scarce](const std::vector<Tensor>& arguments, Tensor* result) {
        result->dtype = DType::kString;
        result->dims = {arguments[0].dims[0]};
        result->strings.resize(arguments[0].dims[0]);
        if (arguments[0].data[0] == 1) {
          result->strings[0] = std::string(64 * kMiB, 'a');
          scarce = std::make_unique<ScarceMemory>();
        }
        return Status();
      },
      1);
  fixture.Add(Bytes({1}, 1));
  fixture.Add(Bytes({1}, 0));
  fixture.Run();
  scarce.reset();
  CHECK((fixture.answers->Codes() == std::map<int, int>{{0, 1}, {kExhausted, 1}}));
}

const std::map<std::string, void (*)()> kTests = {
    {"borrowing", Borrowing},
    {"isolation", Isolation},
    {"memory_for_batches", MemoryForBatches},
    {"memory_for_strings", MemoryForStrings},
    {"memory_for_runs", MemoryForRuns},
    {"memory_for_replies", MemoryForReplies},
};

}  // namespace
}  // namespace seed_rl::transport

int main(int argc, char** argv) {
  CHECK(argc == 2);
  seed_rl::transport::kTests.at(argv[1])();
  return 0;
}
