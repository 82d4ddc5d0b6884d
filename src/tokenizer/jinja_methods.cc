#include "tokenizer/jinja_methods.h"

namespace shoal::tokenizer::jinja {
namespace {

struct BoundMethod : Callable {
  BoundMethod(Value s, MethodFunction m, Text n) : self(std::move(s)), method(m), name(std::move(n)) {}
  Value call(Heap& heap, Arguments& arguments) override { return method(heap, self, arguments); }
  std::string describe() const override {
    return "<built-in method " + name->bytes + " of " + type_name(self) + " object>";
  }

  Value self;
  MethodFunction method;
  Text name;
};

}  // namespace

MethodFunction find_method(const Value& self, std::string_view name) {
  if (self.dict() != nullptr) return find_dict_method(name);
  if (self.is_text()) return find_text_method(name);
  const List* list = self.list();
  if (list == nullptr) return nullptr;
  switch (list->kind) {
    case ListKind::kList:
      return find_list_method(name);
    case ListKind::kTuple:
    case ListKind::kRange:
    case ListKind::kGroup:
      return find_tuple_method(name);
    default:
      return nullptr;
  }
}

Value bind_method(Heap& heap, const Value& self, MethodFunction method, const Text& name) {
  return heap.make<BoundMethod>(self, method, name);
}

}  // namespace shoal::tokenizer::jinja
