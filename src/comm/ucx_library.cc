#include "comm/ucx_library.h"

#include <fmt/format.h>

#ifdef SHOAL_UCX

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <type_traits>

#include "core/clock.h"

namespace shoal::comm {
namespace {

// A forced close waits for nobody; one that does all the same goes with the worker.
constexpr std::chrono::seconds kCloseTime{1};

bool exists(const std::string& interface) {
  const std::string device = interface.substr(0, interface.find(':'));
  if (device.empty() || device == "." || device == ".." || device.find('/') != std::string::npos)
    return false;
  return std::ranges::any_of(std::array{"net", "infiniband"}, [&](const char* kind) {
    std::error_code ignored;
    return std::filesystem::exists(fmt::format("/sys/class/{}/{}", kind, device), ignored);
  });
}

}  // namespace

Status check_fabric(const std::string& interface) {
  SHOAL_TRY(UcpApi::get().status());
  // UCX only warns, and takes another.
  if (exists(interface)) return {};
  return {ErrorCode::kInvalidArgument, fmt::format("--fabric {}: there is no such interface here", interface),
          "--fabric"};
}

Expected<const UcpApi*> UcpApi::get() {
  static const Expected<UcpApi> api = load();
  if (!api.ok()) return api.error();
  return &*api;
}

Expected<UcpApi> UcpApi::load() {
  void* library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Status(ErrorCode::kUnsupported,
                  "--fabric: UCX is not installed here: install libucx0, or leave it out", "--fabric");
  UcpApi api;
  bool all = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    all &= function != nullptr;
  };
  find(api.init_version, "ucp_init_version");
  find(api.cleanup, "ucp_cleanup");
  find(api.config_read, "ucp_config_read");
  find(api.config_modify, "ucp_config_modify");
  find(api.config_release, "ucp_config_release");
  find(api.worker_create, "ucp_worker_create");
  find(api.worker_destroy, "ucp_worker_destroy");
  find(api.worker_get_address, "ucp_worker_get_address");
  find(api.worker_release_address, "ucp_worker_release_address");
  find(api.worker_progress, "ucp_worker_progress");
  find(api.worker_get_efd, "ucp_worker_get_efd");
  find(api.worker_arm, "ucp_worker_arm");
  find(api.worker_flush_nbx, "ucp_worker_flush_nbx");
  find(api.ep_create, "ucp_ep_create");
  find(api.ep_close_nbx, "ucp_ep_close_nbx");
  find(api.tag_send_nbx, "ucp_tag_send_nbx");
  find(api.tag_recv_nbx, "ucp_tag_recv_nbx");
  find(api.request_check_status, "ucp_request_check_status");
  find(api.request_cancel, "ucp_request_cancel");
  find(api.request_free, "ucp_request_free");
  find(api.status_string, "ucs_status_string");
  if (!all)
    return Status(ErrorCode::kUnsupported, "--fabric: the UCX installed here is older than 1.10", "--fabric");
  return api;
}

Expected<std::unique_ptr<UcxWorker>> UcxWorker::open(const std::string& interface, std::uint64_t features) {
  SHOAL_TRY(check_fabric(interface));
  SHOAL_ASSIGN(api, UcpApi::get());
  std::unique_ptr<UcxWorker> made(new UcxWorker(*api));
  ucp_config_t* config = nullptr;
  if (const auto status = api->config_read(nullptr, nullptr, &config); status != UCS_OK)
    return made->error(ErrorCode::kUnsupported, "UCX cannot be configured", status);
  ucs_status_t status = api->config_modify(config, "NET_DEVICES", interface.c_str());
  if (status == UCS_OK && std::getenv("UCX_TLS") == nullptr)
    status = api->config_modify(config, "TLS", "^shm");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = features | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK)
    status = api->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &made->context_);
  api->config_release(config);
  if (status != UCS_OK)
    return made->error(ErrorCode::kInvalidArgument, fmt::format("--fabric {}", interface).c_str(), status);
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // Several threads, one at a time.
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (status = api->worker_create(made->context_, &worker_params, &made->worker_); status != UCS_OK)
    return made->error(ErrorCode::kInvalidArgument,
                       fmt::format("--fabric {}: no way to send there", interface).c_str(), status);
  if (status = api->worker_get_efd(made->worker_, &made->events_); status != UCS_OK)
    return made->error(ErrorCode::kUnsupported, "UCX cannot be slept on", status);
  return made;
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) api_.worker_destroy(worker_);
  if (context_ != nullptr) api_.cleanup(context_);
}

Status UcxWorker::error(ErrorCode code, const char* what, ucs_status_t status) const {
  return {code, fmt::format("{}: {}", what, api_.status_string(status))};
}

Expected<bool> UcxWorker::arm() {
  const auto armed = api_.worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) return false;
  if (armed != UCS_OK) return error(ErrorCode::kUnavailable, "the fabric's events cannot be awaited", armed);
  return true;
}

Expected<std::vector<std::byte>> UcxWorker::address() const {
  ucp_address_t* own = nullptr;
  std::size_t length = 0;
  if (const auto status = api_.worker_get_address(worker_, &own, &length); status != UCS_OK)
    return error(ErrorCode::kUnsupported, "UCX gives no address", status);
  std::vector<std::byte> address(length);
  std::memcpy(address.data(), own, length);
  api_.worker_release_address(worker_, own);
  return address;
}

Expected<ucp_ep_h> UcxWorker::connect(std::span<const std::byte> address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  // Its messages' status says it.
  params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {};
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  ucp_ep_h endpoint = nullptr;
  if (const auto status = api_.ep_create(worker_, &params, &endpoint); status != UCS_OK)
    return error(ErrorCode::kUnavailable, "a rank cannot be reached over the fabric", status);
  return endpoint;
}

void UcxWorker::close(ucp_ep_h endpoint) {
  ucp_request_param_t force{};
  force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  force.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* closing = api_.ep_close_nbx(endpoint, &force);
  if (!UCS_PTR_IS_PTR(closing)) return;
  const TimePoint end = now() + kCloseTime;
  while (api_.request_check_status(closing) == UCS_INPROGRESS && now() < end) progress();
  api_.request_free(closing);
}

}  // namespace shoal::comm

#else

namespace shoal::comm {

Status check_fabric(const std::string& interface) {
  return {ErrorCode::kUnsupported,
          fmt::format("--fabric {}: this build has no UCX: build with libucx-dev installed, or leave it out",
                      interface),
          "--fabric"};
}

}  // namespace shoal::comm

#endif
