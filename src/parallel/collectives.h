// What the ranks of a group do together: the sums after a row-parallel product.
//
// A group of one has nothing to exchange. Larger groups need carriers between processes, which this build
// does not have: they are refused when the model is loaded, so no call here can find one.
//
// Thread-safety: calls belong to the rank's executor thread.

#pragma once

#include "core/expected.h"
#include "layout/layout.h"
#include "tensor/matrix.h"

namespace shoal::parallel {

// Fails with kUnsupported, naming the first degree above 1.
Status check_carriers(const Layout& layout);

// Adds up the partial sums of all ranks of the group, in the order of the model's segments.
void sum_partials(const Group& group, MatrixView<float> partial);

}  // namespace shoal::parallel
