// configs/kernel_table.schema.json against the fields that the parser reads by.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "config/fields.hpp"
#include "generator/files.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {
namespace {

using Json = nlohmann::json;

Json schema() {
  return Json::parse(read(source_dir() / "configs/kernel_table.schema.json"));
}

template <class T>
std::set<T> set_of(const Json& array) {
  std::set<T> result;
  for (const Json& item : array) result.insert(item.get<T>());
  return result;
}

std::set<std::string> words_of(const Field& field) {
  return {field.words.begin(), field.words.end()};
}

/// {one, array of it}: a value that may be given alone or in a list.
std::pair<Json, Json> alone_or_list(const Json& property) {
  REQUIRE(property.at("oneOf").size() == 2);
  const Json& list = property["oneOf"][1];
  CHECK(list.at("type") == "array");
  CHECK(list.at("minItems") == 1);
  CHECK(list.at("uniqueItems") == true);
  return {property["oneOf"][0], list.at("items")};
}

void check_integer(const Json& property, const Field& field) {
  CHECK(property.at("type") == "integer");
  if (!field.values.empty()) {
    CHECK(set_of<std::int64_t>(property.at("enum")) ==
          std::set<std::int64_t>(field.values.begin(), field.values.end()));
    return;
  }
  CHECK(property.at("minimum") == field.low);
  CHECK(property.contains("maximum") == (field.high != kUnbounded));
  if (property.contains("maximum")) CHECK(property["maximum"] == field.high);
}

void check_type(const Json& property, const Field& field) {
  switch (field.type) {
    case FieldType::integer:
      check_integer(property, field);
      break;
    case FieldType::number:
      CHECK(property.at("type") == "number");
      CHECK(property.at("minimum") == 0);
      break;
    case FieldType::flag:
      CHECK(property.at("type") == "boolean");
      break;
    case FieldType::text:
      CHECK(property.at("type") == "string");
      CHECK(property.at("minLength") == 1);
      break;
    case FieldType::date:
      CHECK(property.at("format") == "date");
      break;
    case FieldType::word:
      CHECK(set_of<std::string>(property.at("enum")) == words_of(field));
      break;
    case FieldType::words:
      for (const Json& value : {alone_or_list(property).first, alone_or_list(property).second})
        CHECK(set_of<std::string>(value.at("enum")) == words_of(field));
      break;
    case FieldType::flags:
      for (const Json& value : {alone_or_list(property).first, alone_or_list(property).second})
        CHECK(value.at("type") == "boolean");
      break;
    case FieldType::integers:
      CHECK(property.at("type") == "array");
      CHECK(set_of<std::int64_t>(property.at("items").at("enum")) ==
            std::set<std::int64_t>(field.values.begin(), field.values.end()));
      break;
    case FieldType::texts:
      CHECK(property.at("type") == "array");
      CHECK(property.at("items").at("type") == "string");
      break;
    case FieldType::range:
      check_integer(property.at("oneOf").at(0), field);
      CHECK(property.at("oneOf").at(1).contains("pattern"));
      break;
    case FieldType::map:
      CHECK(property.contains("$ref"));
      break;
    case FieldType::list_of_maps:
      CHECK(property.at("type") == "array");
      CHECK(property.at("items").contains("$ref"));
      break;
  }
}

}  // namespace

TEST_CASE("the schema has the parser's mappings, and no others", "[schema]") {
  std::set<std::string> defined, parsed;
  const Json document = schema();
  for (const auto& [name, definition] : document.at("$defs").items()) defined.insert(name);
  for (const MapFields* fields : all_map_fields()) parsed.insert(std::string(fields->definition));
  CHECK(defined == parsed);
}

TEST_CASE("every key of the parser is in the schema, and every key of the schema in the parser", "[schema]") {
  const Json document = schema();
  for (const MapFields* fields : all_map_fields()) {
    INFO(fields->definition);
    const Json& definition = document.at("$defs").at(std::string(fields->definition));
    // The other keys of `use` are in the definitions of the families.
    if (fields != &kUseFields) CHECK(definition.at("additionalProperties") == false);
    std::set<std::string> keys, required, schema_keys;
    for (const Field& field : fields->fields) {
      keys.insert(std::string(field.name));
      if (field.required) required.insert(std::string(field.name));
    }
    for (const auto& [key, property] : definition.at("properties").items()) schema_keys.insert(key);
    CHECK(schema_keys == keys);
    CHECK(set_of<std::string>(definition.at("required")) == required);
  }
}

TEST_CASE("types, bounds and words of the schema are the parser's", "[schema]") {
  const Json document = schema();
  for (const MapFields* fields : all_map_fields())
    for (const Field& field : fields->fields) {
      INFO(fields->definition << '.' << field.name);
      check_type(document.at("$defs").at(std::string(fields->definition)).at("properties").at(std::string(field.name)),
                 field);
    }
}

TEST_CASE("the family of a row decides which keys its tile has", "[schema]") {
  const Json use = schema().at("$defs").at("use");
  const auto reference = [](KernelFamily family) {
    return Json{{"$ref", "#/$defs/" + std::string(use_fields(family).definition)}};
  };
  const Json is_hopper = {{"properties", {{"family", {{"const", "hopper"}}}}}, {"required", {"family"}}};
  CHECK(use.at("if") == is_hopper);
  CHECK(use.at("then") == reference(KernelFamily::hopper));
  CHECK(use.at("else") == reference(KernelFamily::ampere));
}

TEST_CASE("every definition and every key is described", "[schema]") {
  const Json document = schema();
  for (const auto& [name, definition] : document.at("$defs").items()) {
    INFO(name);
    CHECK_FALSE(definition.at("description").get<std::string>().empty());
    for (const auto& [key, property] : definition.at("properties").items()) {
      INFO(key);
      CHECK_FALSE(property.at("description").get<std::string>().empty());
    }
  }
}

TEST_CASE("every file of configs/ names the schema for editors", "[schema]") {
  for (const auto& [path, text] : read_tree(source_dir() / "configs")) {
    if (!path.ends_with(".yaml")) continue;
    INFO(path);
    CHECK(text.starts_with("# yaml-language-server: $schema=../kernel_table.schema.json\n"));
  }
}

}  // namespace flashdma_bwd::generator::test
