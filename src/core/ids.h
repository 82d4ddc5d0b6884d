// Strong integer types: a page is not a token count, and the compiler knows.
//
// Thread-safety: values.
// Invariants: no implicit conversion between two ids or from an integer; `value` is public because every
//   wire message and array index needs it.

#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace shoal {

template <typename Tag, typename Integer>
struct Id {
  Integer value{};

  constexpr Id() = default;
  constexpr explicit Id(Integer v) : value(v) {}
  friend constexpr auto operator<=>(Id, Id) = default;
};

using TokenId = std::int32_t;  // plain: vocabularies, files and the wire all speak int32

using RequestId = Id<struct RequestTag, std::uint64_t>;
using PlanNumber = Id<struct PlanTag, std::uint64_t>;
using Epoch = Id<struct EpochTag, std::uint64_t>;
// A row of the sequence table that the head and every rank keep alike.
using SequenceSlot = Id<struct SequenceTag, std::int32_t>;
using KvGroupId = Id<struct KvGroupTag, std::int32_t>;

}  // namespace shoal

template <typename Tag, typename Integer>
struct std::hash<shoal::Id<Tag, Integer>> {
  std::size_t operator()(shoal::Id<Tag, Integer> id) const noexcept { return std::hash<Integer>{}(id.value); }
};
