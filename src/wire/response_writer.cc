#include "wire/response_writer.h"

#include <utility>

#include "wire/response_state.h"

namespace shoal::wire {

ResponseWriter::ResponseWriter(std::shared_ptr<ResponseState> state) : state_(std::move(state)) {}

ResponseWriter::~ResponseWriter() { state_->dropped(); }

void ResponseWriter::respond(int status, std::string_view content_type, std::string_view body,
                             const HeaderList& extra) {
  state_->respond(status, content_type, body, extra);
}

void ResponseWriter::respond(const HttpReply& reply) {
  state_->respond(reply.status, reply.content_type, reply.body, reply.headers);
}

void ResponseWriter::begin_stream(int status, std::string_view content_type, const HeaderList& extra) {
  state_->begin_stream(status, content_type, extra);
}

bool ResponseWriter::write(std::string_view bytes) { return state_->write(bytes); }

void ResponseWriter::end() { state_->end(); }

std::size_t ResponseWriter::backlog() const { return state_->backlog(); }

void ResponseWriter::on_backlog_below(std::size_t bytes, std::function<void()> callback) {
  state_->on_backlog_below(bytes, std::move(callback));
}

void ResponseWriter::on_disconnect(std::function<void()> callback) {
  state_->on_disconnect(std::move(callback));
}

bool ResponseWriter::disconnected() const { return state_->disconnected(); }

const std::string& ResponseWriter::request_id() const { return state_->request_id(); }

}  // namespace shoal::wire
