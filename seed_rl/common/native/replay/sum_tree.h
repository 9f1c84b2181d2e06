// Sum-tree: draws leaves in proportion to their values in O(log n) (Schaul et al. 2016, Prioritized
// Experience Replay, appendix B.2.1).

#ifndef SEED_RL_COMMON_NATIVE_REPLAY_SUM_TREE_H_
#define SEED_RL_COMMON_NATIVE_REPLAY_SUM_TREE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace seed_rl {

// A binary tree over `capacity` values >= 0 whose inner nodes hold the sum of their two children.
//
// Every change recomputes the sums on its path from the children instead of adding a difference, so
// the tree depends on the current values alone: rounding errors do not accumulate over a run.
//
// Not thread-safe.
class SumTree {
 public:
  explicit SumTree(int64_t capacity);

  double total() const { return nodes_[1]; }
  double Get(int64_t leaf) const { return nodes_[num_leaves_ + leaf]; }

  void Set(int64_t leaf, double value);

  // Sets a value but not the sums above it; `Rebuild` must follow. For filling the whole tree.
  void SetWithoutSums(int64_t leaf, double value) { nodes_[num_leaves_ + leaf] = value; }
  void Rebuild();

  // The leaf that contains the point `fraction` in [0, 1) of the total, with the values laid end to
  // end. Never a leaf of value 0. The total must be > 0.
  int64_t Find(double fraction) const;

  int64_t bytes() const { return static_cast<int64_t>(nodes_.size() * sizeof(double)); }

 private:
  int64_t num_leaves_ = 1;     // The capacity rounded up to a power of two.
  std::vector<double> nodes_;  // 1 is the root; the children of i are 2i and 2i + 1.
};

}  // namespace seed_rl

#endif  // SEED_RL_COMMON_NATIVE_REPLAY_SUM_TREE_H_
