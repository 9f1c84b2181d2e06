#include "seed_rl/common/native/replay/segment_log.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace seed_rl {
namespace {

size_t PageSize() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t WholePages(size_t bytes) { return (bytes + PageSize() - 1) / PageSize() * PageSize(); }

// Memory that a segment takes from the system; untouched pages take none.
size_t Footprint(const Segment& segment) {
  return WholePages(segment.used()) + sizeof(Segment) + segment.ends.capacity() * sizeof(uint32_t);
}

}  // namespace

Mapping::Mapping(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
  void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(data);
}

Mapping::~Mapping() { munmap(data_, bytes_); }

void Mapping::Trim(size_t bytes) {
  const size_t kept = std::max(WholePages(bytes), PageSize());
  if (kept >= bytes_) return;
  munmap(data_ + kept, bytes_ - kept);
  bytes_ = kept;
}

void SegmentLog::Append(int64_t key, const uint8_t* data, size_t bytes) {
  if (!open_ || segments_.back()->used() + bytes > segments_.back()->memory.bytes()) {
    auto segment = std::make_shared<Segment>(key, std::max(segment_bytes_, bytes));
    Seal();
    segments_.push_back(std::move(segment));
    open_ = true;
    bytes_ += Footprint(*segments_.back());
  }
  Segment& segment = *segments_.back();
  const size_t begin = segment.used();
  bytes_ -= Footprint(segment);
  segment.ends.push_back(static_cast<uint32_t>(begin + bytes));
  bytes_ += Footprint(segment);
  std::memcpy(segment.memory.data() + begin, data, bytes);
}

void SegmentLog::AppendSegment(std::shared_ptr<Segment> segment) {
  Seal();
  bytes_ += Footprint(*segment);
  segments_.push_back(std::move(segment));
}

void SegmentLog::DropBefore(int64_t key) {
  while (!segments_.empty() && segments_.front()->end_key() <= key) {
    if (segments_.size() == 1) open_ = false;
    bytes_ -= Footprint(*segments_.front());
    segments_.pop_front();
  }
}

void SegmentLog::Seal() {
  if (!open_) return;
  Segment& segment = *segments_.back();
  bytes_ -= Footprint(segment);
  segment.ends.shrink_to_fit();
  segment.memory.Trim(segment.used());
  bytes_ += Footprint(segment);
  open_ = false;
}

std::shared_ptr<const Segment> SegmentLog::Find(int64_t key, Record* record) const {
  auto after = std::upper_bound(
      segments_.begin(), segments_.end(), key,
      [](int64_t key, const std::shared_ptr<Segment>& s) { return key < s->first_key; });
  const std::shared_ptr<Segment>& segment = *std::prev(after);
  const size_t index = static_cast<size_t>(key - segment->first_key);
  const size_t begin = index == 0 ? 0 : segment->ends[index - 1];
  *record = {segment->memory.data() + begin, segment->ends[index] - begin};
  return segment;
}

}  // namespace seed_rl
