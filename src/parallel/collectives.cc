#include "parallel/collectives.h"

#include <fmt/format.h>

#include <cassert>
#include <utility>

namespace shoal::parallel {

Status check_carriers(const Layout& layout) {
  const Degrees& d = layout.degrees();
  for (const auto& [name, degree] :
       {std::pair{"tp", d.tp}, {"pp", d.pp}, {"cp", d.cp}, {"dp", d.dp}, {"ep", d.ep}}) {
    if (degree > 1) {
      return Status(
          ErrorCode::kUnsupported,
          fmt::format("{} {} needs carriers between ranks, which this build does not have: use {} 1", name,
                      degree, name));
    }
  }
  return {};
}

void sum_partials([[maybe_unused]] const Group& group, [[maybe_unused]] MatrixView<float> partial) {
  assert(group.alone());
}

}  // namespace shoal::parallel
