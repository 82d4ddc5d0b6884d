#include "layout/layout.h"

#include <fmt/format.h>

namespace shoal {

Expected<Layout> Layout::make(Degrees d) {
  for (const auto& [name, degree] :
       {std::pair{"tp", d.tp}, {"pp", d.pp}, {"cp", d.cp}, {"dp", d.dp}, {"ep", d.ep}}) {
    if (degree < 1 || degree > 65536) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("layout: {} is {}, it must be at least 1", name, degree));
    }
  }
  if ((d.tp * d.cp * d.dp) % d.ep != 0) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("layout: ep {} does not divide tp x cp x dp = {}", d.ep, d.tp * d.cp * d.dp));
  }
  return Layout(d);
}

Coordinate Layout::coordinate(std::int32_t rank) const {
  Coordinate at;
  at.tp = rank % degrees_.tp;
  rank /= degrees_.tp;
  at.cp = rank % degrees_.cp;
  rank /= degrees_.cp;
  at.dp = rank % degrees_.dp;
  at.pp = rank / degrees_.dp;
  return at;
}

std::int32_t Layout::rank(Coordinate at) const {
  return ((at.pp * degrees_.dp + at.dp) * degrees_.cp + at.cp) * degrees_.tp + at.tp;
}

Group Layout::group(GroupKind kind, std::int32_t rank) const {
  const Coordinate self = coordinate(rank);
  Group group;
  const std::int32_t stage_ranks = degrees_.tp * degrees_.cp * degrees_.dp;
  auto add = [&](std::int32_t member) {
    if (member == rank) group.index = group.size();
    group.ranks.push_back(member);
  };
  switch (kind) {
    case GroupKind::kAttentionTensor:
    case GroupKind::kFeedForwardTensor:
    case GroupKind::kSampling:
      for (std::int32_t tp = 0; tp < degrees_.tp; ++tp) add(this->rank({tp, self.pp, self.cp, self.dp}));
      break;
    case GroupKind::kContext:
      for (std::int32_t cp = 0; cp < degrees_.cp; ++cp) add(this->rank({self.tp, self.pp, cp, self.dp}));
      break;
    case GroupKind::kExpert: {
      // Consecutive ranks of a stage share its experts: the closest ones first.
      const std::int32_t inside = rank % stage_ranks;
      const std::int32_t first = rank - inside % degrees_.ep;
      for (std::int32_t i = 0; i < degrees_.ep; ++i) add(first + i);
      break;
    }
    case GroupKind::kPipeline:
      for (std::int32_t pp = 0; pp < degrees_.pp; ++pp) add(this->rank({self.tp, pp, self.cp, self.dp}));
      break;
  }
  return group;
}

std::string Layout::to_string() const {
  return fmt::format("tp{} pp{} cp{} dp{} ep{}", degrees_.tp, degrees_.pp, degrees_.cp, degrees_.dp,
                     degrees_.ep);
}

}  // namespace shoal
