// The UCX library, loaded when somebody first asks for a fabric, and a worker of it on one interface.
//
// It is loaded then and not linked, because it handles signals and memory in ways that a process which does
// not use it should not have to know about; it is never unloaded, because it has left handlers behind.
//
// Thread-safety: UcpApi::get() from any thread; a UcxWorker belongs to one thread at a time.
// Ownership: a UcxWorker owns UCX's objects. Endpoints are closed by whoever has connected them, before it
//   goes.

#pragma once

#include <string>

#include "core/expected.h"

namespace shoal::comm {

// Whether ranks could meet on this interface ("mlx5_0:1", "eth1", "lo"): kUnsupported where the build or the
// machine has no UCX, kInvalidArgument where there is no such interface.
Status check_fabric(const std::string& interface);

}  // namespace shoal::comm

#ifdef SHOAL_UCX

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace shoal::comm {

// The functions of the library that are used here, found by name.
struct UcpApi {
  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_worker_flush_nbx) worker_flush_nbx = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&::ucp_tag_send_nbx) tag_send_nbx = nullptr;
  decltype(&::ucp_tag_recv_nbx) tag_recv_nbx = nullptr;
  decltype(&::ucp_request_check_status) request_check_status = nullptr;
  decltype(&::ucp_request_cancel) request_cancel = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;

  static Expected<const UcpApi*> get();

 private:
  static Expected<UcpApi> load();
};

class UcxWorker {
 public:
  // features: UCP_FEATURE_*. Messages leave through the named interface alone: not through memory that two
  // processes of a machine share, either, unless UCX_TLS says otherwise. Fails as check_fabric(), and where
  // UCX cannot use the interface.
  static Expected<std::unique_ptr<UcxWorker>> open(const std::string& interface, std::uint64_t features);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  const UcpApi& api() const { return api_; }
  ucp_worker_h worker() const { return worker_; }
  // Becomes readable when there is something to progress, once armed.
  int events() const { return events_; }
  bool progress() { return api_.worker_progress(worker_) != 0; }
  // Whether it may be slept on now; false where there is something to progress.
  Expected<bool> arm();
  Status error(ErrorCode code, const char* what, ucs_status_t status) const;

  // By which others connect.
  Expected<std::vector<std::byte>> address() const;
  Expected<ucp_ep_h> connect(std::span<const std::byte> address);
  // At once, whatever is on its way.
  void close(ucp_ep_h endpoint);

 private:
  explicit UcxWorker(const UcpApi& api) : api_(api) {}

  const UcpApi& api_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int events_ = -1;
};

}  // namespace shoal::comm

#endif
