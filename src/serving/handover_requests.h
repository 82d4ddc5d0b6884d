// The legs of requests that two workers share (engine/handover_leg.h): from a request's bootstrap fields to
// rooms.
//
// Thread-safety: as the worker's parts.

#pragma once

#include <vector>

#include "core/expected.h"
#include "serving/generation_session.h"
#include "serving/worker.h"
#include "wire/json.h"
#include "wire/openai_request.h"

namespace shoal::serving {

// Each sequence of the prompts gets its room, where the request names any. Refuses rooms on a worker without
// the role for them, rooms in use, and what cannot be handed over.
Status add_legs(Worker& worker, const wire::CommonFields& fields, std::vector<SessionPrompt>& prompts);

// The bootstrap_room of an abort, one or a list: ends what runs in them, and has them refused should they
// come later, for an abort may overtake its request. Returns how many it names.
Expected<std::size_t> abandon_rooms(Worker& worker, const wire::JsonFields& fields);

}  // namespace shoal::serving
