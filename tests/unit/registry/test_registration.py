import json

from tests.registries import DirectClient, with_registry

INT, STRING = '"int"', '"string"'
PERSON = {"type": "record", "name": "Person", "fields": [{"name": "id", "type": "int"}]}
WITH_NAME = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
}
WITH_DEFAULT = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": "string", "default": ""},
    ],
}


@with_registry
async def test_the_same_text_has_one_id_in_all_subjects(client: DirectClient) -> None:
    assert (await client.register("a", PERSON)).content == {"id": 1}
    assert (await client.register("b", json.dumps(PERSON, indent=4))).content == {"id": 1}
    assert (await client.register("b", WITH_DEFAULT)).content == {"id": 2}
    assert (await client.register("a", PERSON)).content == {"id": 1}
    assert (await client.get("/subjects/a/versions")).content == [1]
    assert (await client.get("/subjects/b/versions")).content == [1, 2]


@with_registry
async def test_a_client_that_ignores_unknown_members_sees_the_version(
    client: DirectClient,
) -> None:
    header = {"confluent_accept_unknown_properties": "true"}
    body = {"schema": INT}
    answer = await client.post("/subjects/a/versions", body, **header)
    assert answer.content["id"] == answer.content["version"] == 1
    assert answer.content["schemaType"] == "AVRO"
    assert len(answer.content["guid"]) == 36
    assert "schema" not in answer.content
    answer = await client.post("/subjects/a/versions?format=resolved", body, **header)
    assert answer.content["schema"] == INT


@with_registry
async def test_an_incompatible_schema_is_refused_with_the_field(client: DirectClient) -> None:
    await client.register("a", PERSON)
    refused = await client.register("a", WITH_NAME)
    assert (refused.status, refused.code) == (409, 40901)
    assert "name" in refused.content["message"]
    assert "{oldSchemaVersion: 1}" in refused.content["message"]
    assert (await client.register("a", WITH_NAME, "?force=true")).content == {"id": 2}


@with_registry
async def test_levels_choose_direction_and_versions(client: DirectClient) -> None:
    await client.register("a", PERSON)
    await client.put("/config/a", {"compatibility": "forward"})
    assert (await client.register("a", WITH_NAME)).status == 200
    await client.put("/config/a", {"compatibility": "FULL"})
    assert (await client.register("a", PERSON)).content == {"id": 1}
    other = {**PERSON, "fields": [{"name": "x", "type": "int", "default": 1}]}
    assert (await client.register("a", other)).code == 40901
    await client.put("/config/a", {"compatibility": "NONE"})
    assert (await client.register("a", STRING)).status == 200
    await client.put("/config/a", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert (await client.register("a", '["string","null"]')).code == 40901
    await client.put("/config/a", {"compatibility": "BACKWARD"})
    assert (await client.register("a", '["string","null"]')).status == 200


@with_registry
async def test_types_of_one_subject_are_incompatible(client: DirectClient) -> None:
    await client.register("a", INT)
    refused = await client.register("a", "{}", schemaType="JSON")
    assert refused.code == 40901
    assert "SCHEMA_TYPE_CHANGED" in refused.content["message"]


@with_registry
async def test_bad_schemas_and_types_are_42201(client: DirectClient) -> None:
    for schema, more in (
        ("", {}),
        ("nonsense", {}),
        (INT, {"schemaType": "XML"}),
        (INT, {"version": 7}),
        (INT, {"references": [{"name": "n", "subject": "nowhere", "version": 1}]}),
        ("[" * 100_000, {}),
        ('{"a":' * 100_000, {"schemaType": "JSON"}),
        ("message A {" * 50_000, {"schemaType": "PROTOBUF"}),
    ):
        answer = await client.register("a", schema, **more)
        assert (answer.status, answer.code) == (422, 42201), (schema[:20], more)
    assert (await client.get("/subjects")).content == []


@with_registry
async def test_an_empty_text_takes_the_previous_versions(client: DirectClient) -> None:
    await client.register("a", INT)
    body = {"schema": "", "metadata": {"properties": {"owner": "me"}}}
    assert (await client.post("/subjects/a/versions", body)).content == {"id": 2}
    latest = (await client.get("/subjects/a/versions/latest")).content
    assert (latest["schema"], latest["metadata"]) == (INT, {"properties": {"owner": "me"}})


@with_registry
async def test_schemas_over_the_limit_are_42209(client: DirectClient) -> None:
    text = json.dumps({**PERSON, "doc": "x" * (1 << 20)})
    answer = await client.register("a", text)
    assert (answer.status, answer.code) == (422, 42209)
    text = json.dumps({**PERSON, "doc": "x" * ((1 << 20) - 1000)})
    assert (await client.register("a", text)).content == {"id": 1}


@with_registry
async def test_subjects_with_reserved_names_are_42208(client: DirectClient) -> None:
    for subject in ("__GLOBAL", "__EMPTY", "a\nb", "x" * 2000):
        assert (await client.register(subject, INT)).code == 42208, subject


@with_registry
async def test_references_are_resolved_in_the_context(client: DirectClient) -> None:
    await client.register(":.c:person", PERSON)
    references = [{"name": "Person", "subject": "person", "version": 1}]
    list_of = {"type": "array", "items": "Person"}
    assert (await client.register("list", list_of, references=references)).code == 42201
    answer = await client.register(":.c:list", list_of, references=references)
    assert answer.content == {"id": 2}
    referrers = await client.get("/contexts/c/subjects/person/versions/1/referencedby")
    assert referrers.content == [2]
    latest = [{"name": "Person", "subject": ":.c:person", "version": -1}]
    assert (await client.register("list", list_of, references=latest)).content == {"id": 1}
    stored = (await client.get("/subjects/list/versions/1")).content
    assert stored["references"] == [{"name": "Person", "subject": ":.c:person", "version": 1}]


@with_registry
async def test_references_deeper_than_ten_are_refused(client: DirectClient) -> None:
    name, references = '"int"', []
    for depth in range(11):
        record = {"type": "record", "name": f"R{depth}", "fields": [{"name": "f", "type": "R"}]}
        text = json.dumps(record).replace('"R"', name)
        answer = await client.register(f"s{depth}", text, references=references)
        assert answer.status == (200 if depth < 10 else 422), (depth, answer.content)
        name = f'"R{depth}"'
        references = [{"name": f"R{depth}", "subject": f"s{depth}", "version": 1}]


@with_registry
async def test_normalize_makes_two_spellings_one_schema(client: DirectClient) -> None:
    one = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":"int"}]}'
    two = '{"fields":[{"type":{"type":"int"},"name":"f"}],"name":"n.R","type":"record"}'
    assert (await client.register("a", one, "?normalize=true")).content == {"id": 1}
    assert (await client.register("a", two, "?normalize=true")).content == {"id": 1}
    await client.put("/config/b", {"normalize": True})
    assert (await client.register("b", two)).content == {"id": 1}


@with_registry
async def test_import_takes_ids_and_versions(client: DirectClient) -> None:
    refused = await client.register("a", INT, id=7)
    assert (refused.code, refused.status) == (42205, 422)
    assert (await client.put("/mode/a", {"mode": "IMPORT"})).content == {"mode": "IMPORT"}
    assert (await client.register("a", INT, id=7, version=3)).content == {"id": 7}
    assert (await client.register("a", STRING, id=7)).code == 42207
    assert (await client.register("a", STRING)).code == 42205
    assert (await client.register("a", STRING, id=9, version=2)).content == {"id": 9}
    assert (await client.get("/subjects/a/versions")).content == [2, 3]
    assert (await client.register("b", PERSON)).content == {"id": 10}


@with_registry
async def test_a_known_schema_is_answered_in_every_mode(client: DirectClient) -> None:
    await client.register("a", INT)
    await client.put("/mode", {"mode": "READONLY"})
    assert (await client.register("a", INT)).content == {"id": 1}
    refused = await client.register("a", STRING)
    assert refused.code == 42205
    assert "read-only" in refused.content["message"]


@with_registry
async def test_a_version_must_be_the_next_one(client: DirectClient) -> None:
    assert (await client.register("a", INT, version=1)).content == {"id": 1}
    assert (await client.register("a", '["int"]', version=3)).code == 42201
    assert (await client.register("a", '["int"]', version=2)).content == {"id": 2}


@with_registry
async def test_metadata_and_rules_are_part_of_the_schema(client: DirectClient) -> None:
    await client.register("a", INT)
    metadata = {"properties": {"owner": "me"}}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL"}]}
    answer = await client.register("a", INT, metadata=metadata, ruleSet=rules)
    assert answer.content == {"id": 2}
    # Without metadata the schema takes over the latest version's.
    assert (await client.register("a", INT)).content["id"] == 2
    found = (await client.get("/subjects/a/metadata?key=owner&value=me")).content
    assert (found["version"], found["metadata"]) == (2, metadata)
    assert found["ruleSet"]["domainRules"][0]["disabled"] is False
    assert (await client.get("/subjects/a/metadata?key=owner&value=you")).code == 40403
    listed = await client.get("/schemas?ruleType=CEL")
    assert [one["version"] for one in listed.content] == [2]


@with_registry
async def test_defaults_and_overrides_of_the_configuration_complete_a_schema(
    client: DirectClient,
) -> None:
    rule = {"name": "r", "mode": "READ", "type": "CEL"}
    config = {
        "defaultMetadata": {"properties": {"owner": "all", "team": "x"}, "tags": {"p": ["A"]}},
        "overrideMetadata": {"properties": {"team": "y"}, "sensitive": ["team"]},
        "overrideRuleSet": {"domainRules": [rule]},
    }
    assert (await client.put("/config", config)).status == 200
    metadata = {"properties": {"owner": "me", "team": "mine"}, "tags": {"p": ["B"]}}
    answer = await client.register("a", INT, metadata=metadata)
    assert answer.content["id"] == 1
    assert answer.content["metadata"] == {
        "properties": {"owner": "me", "team": "y"},
        "tags": {"p": ["A", "B"]},
        "sensitive": ["team"],
    }
    assert answer.content["ruleSet"]["domainRules"][0]["name"] == "r"
    assert (await client.register("a", INT, metadata=metadata)).content["id"] == 1


@with_registry
async def test_rule_sets_need_unique_names_and_modes_of_their_phase(
    client: DirectClient,
) -> None:
    for rules in (
        {"domainRules": [{"kind": "CONDITION"}]},
        {"domainRules": [{"name": "r"}, {"name": "r"}]},
        {"domainRules": [{"name": "r"}], "encodingRules": [{"name": "r"}]},
        {"domainRules": [{"name": "r", "mode": "UPGRADE"}]},
        {"migrationRules": [{"name": "r", "mode": "WRITE"}]},
        {"encodingRules": [{"name": "r", "mode": "DANCE"}]},
        {"encodingRules": [{"name": "r", "kind": "DANCE"}]},
    ):
        answer = await client.register("a", INT, ruleSet=rules)
        assert (answer.status, answer.code) == (422, 42210), rules
        assert (await client.put("/config", {"defaultRuleSet": rules})).code == 42210


@with_registry
async def test_a_compatibility_group_separates_versions(client: DirectClient) -> None:
    await client.put("/config/a", {"compatibilityGroup": "major"})
    one, two = ({"properties": {"major": text}} for text in "12")
    await client.register("a", INT, metadata=one)
    assert (await client.register("a", STRING, metadata=one)).code == 40901
    assert (await client.register("a", STRING, metadata=two)).status == 200
    assert (await client.register("a", '["int"]', metadata=one)).status == 200


@with_registry
async def test_an_alias_is_another_name_of_a_subject(client: DirectClient) -> None:
    await client.register("a", INT)
    await client.put("/config/other", {"alias": "a"})
    assert (await client.get("/subjects/other/versions/1")).content["subject"] == "a"
    assert (await client.register("other", INT)).content == {"id": 1}
    assert (await client.post("/subjects/other", {"schema": INT})).content["version"] == 1
    assert (await client.get("/config/other")).content == {"alias": "a"}
    assert (await client.get("/subjects")).content == ["a"]


@with_registry
async def test_look_up_finds_live_versions(client: DirectClient) -> None:
    assert (await client.post("/subjects/a", {"schema": INT})).code == 40401
    await client.register("a", INT, metadata={"properties": {"k": "v"}})
    found = (await client.post("/subjects/a", {"schema": ' "int" '})).content
    assert (found["subject"], found["version"], found["id"]) == ("a", 1, 1)
    assert (await client.post("/subjects/a", {"schema": STRING})).code == 40403
    await client.register("a", '["int"]')
    await client.delete("/subjects/a/versions/1")
    assert (await client.post("/subjects/a", {"schema": INT})).code == 40403
    deleted = await client.post("/subjects/a?deleted=true", {"schema": INT})
    assert deleted.content["version"] == 1


@with_registry
async def test_a_compatibility_check_says_why(client: DirectClient) -> None:
    path = "/compatibility/subjects/a/versions"
    body = {"schema": json.dumps(WITH_NAME)}
    assert (await client.post(path, body)).content == {"is_compatible": True}
    assert (await client.post(path + "/latest", body)).content == {"is_compatible": True}
    assert (await client.post(path + "/3", body)).code == 40401
    await client.register("a", PERSON)
    assert (await client.post(path + "/3", body)).code == 40402
    assert (await client.post(path + "/0", body)).code == 42202
    for version in ("", "/1", "/latest", "/-1"):
        answer = await client.post(path + version, body)
        assert answer.content == {"is_compatible": False}
        answer = await client.post(path + version + "?verbose=true", body)
        assert answer.content["messages"][-2:-1][0].startswith("{oldSchema:")
    assert (await client.post(path, {"schema": "bad"})).code == 42201
    good = {"schema": json.dumps(WITH_DEFAULT)}
    assert (await client.post(path, good)).content == {"is_compatible": True}


@with_registry
async def test_large_schemas_are_compared_outside_of_the_event_loop(
    client: DirectClient,
) -> None:
    fields = [{"name": f"f{n}", "type": "int", "default": n} for n in range(2_000)]
    large = {**PERSON, "fields": PERSON["fields"] + fields}
    assert (await client.register("a", large)).content == {"id": 1}
    assert (await client.register("a", WITH_NAME)).code == 40901
    assert (await client.register("a", PERSON)).content == {"id": 2}
    formatted = await client.get("/schemas/ids/1?format=resolved")
    assert formatted.status == 200


RESERVES_NAME = {"metadata": {"properties": {"confluent:reserved": "email, name"}}}


@with_registry
async def test_validated_fields_must_not_be_reserved(client: DirectClient) -> None:
    assert (await client.register("free", WITH_NAME, **RESERVES_NAME)).status == 200
    await client.put("/config", {"compatibility": "NONE", "validateFields": True})
    refused = await client.register("a", WITH_NAME, **RESERVES_NAME)
    assert refused.code == 40901
    assert "conflicts with the reserved field name" in refused.content["message"]
    assert (await client.register("a", PERSON, **RESERVES_NAME)).status == 200
    fewer = {"metadata": {"properties": {"confluent:reserved": "email"}}}
    refused = await client.register("a", WITH_NAME, **fewer)
    assert "has reserved field name removed" in refused.content["message"]
    schema = {"type": "object", "properties": {"$$a": {"type": "string"}}}
    refused = await client.register("j", schema, schemaType="JSON")
    assert refused.code == 42201
    assert "must not begin with $$" in refused.content["message"]


@with_registry
async def test_rules_are_checked_unless_the_configuration_says_otherwise(
    client: DirectClient,
) -> None:
    body = {"ruleSet": {"domainRules": [{"name": "a", "mode": "UPGRADE"}]}}
    assert (await client.register("a", INT, **body)).code == 42210
    await client.put("/config/a", {"validateRules": False})
    assert (await client.register("a", INT, **body)).status == 200
    assert (await client.register("b", INT, **body)).code == 42210
