from tests.registries import DirectClient, with_registry

INT, STRING = '"int"', '"string"'


@with_registry
async def test_a_subject_is_deleted_softly_and_then_for_good(client: DirectClient) -> None:
    await client.register("a", INT)
    await client.register("a", '["int"]')
    assert (await client.delete("/subjects/x")).code == 40401
    assert (await client.delete("/subjects/a?permanent=true")).code == 40405
    assert (await client.delete("/subjects/a")).content == [1, 2]
    assert (await client.delete("/subjects/a")).code == 40404
    assert (await client.get("/subjects")).content == []
    assert (await client.get("/subjects?deleted=true")).content == ["a"]
    assert (await client.get("/subjects?deletedOnly=true")).content == ["a"]
    assert (await client.get("/subjects?deleted_only=True")).content == ["a"]
    assert (await client.get("/subjects/a/versions")).code == 40401
    assert (await client.get("/schemas/ids/1")).content == {"schema": INT}
    assert (await client.get("/schemas/ids/1/versions")).content == []
    assert (await client.delete("/subjects/a?permanent=true")).content == [1, 2]
    assert (await client.get("/schemas/ids/1")).code == 40403
    assert (await client.get("/subjects?deleted=true")).content == []


@with_registry
async def test_a_version_is_deleted_softly_and_then_for_good(client: DirectClient) -> None:
    await client.register("a", INT)
    await client.register("a", '["int"]')
    assert (await client.delete("/subjects/x/versions/1")).code == 40401
    assert (await client.delete("/subjects/a/versions/3")).code == 40402
    assert (await client.delete("/subjects/a/versions/nine")).code == 42202
    assert (await client.delete("/subjects/a/versions/1?permanent=true")).code == 40407
    assert (await client.delete("/subjects/a/versions/1")).content == 1
    assert (await client.delete("/subjects/a/versions/1")).code == 40406
    assert (await client.get("/subjects/a/versions")).content == [2]
    assert (await client.get("/subjects/a/versions?deleted=true")).content == [1, 2]
    assert (await client.get("/subjects/a/versions?deletedOnly=true")).content == [1]
    assert (await client.get("/subjects/a/versions?deletedAsNegative=true")).content == [-1, 2]
    assert (await client.get("/subjects/a/versions/1")).code == 40402
    assert (await client.get("/subjects/a/versions/1?deleted=true")).content["version"] == 1
    assert (await client.delete("/subjects/a/versions/1?permanent=true")).content == 1
    assert (await client.delete("/subjects/a/versions/latest")).content == 2


@with_registry
async def test_a_deleted_schema_that_is_registered_again_has_its_id(
    client: DirectClient,
) -> None:
    await client.register("a", INT)
    await client.delete("/subjects/a")
    assert (await client.register("a", INT)).content == {"id": 1}
    assert (await client.get("/subjects/a/versions")).content == [2]


@with_registry
async def test_an_id_is_not_given_again_after_a_hard_delete(client: DirectClient) -> None:
    await client.register("a", INT)
    await client.delete("/subjects/a")
    await client.delete("/subjects/a?permanent=true")
    assert (await client.register("a", STRING)).content == {"id": 2}
    assert (await client.get("/subjects/a/versions")).content == [1]


@with_registry
async def test_configuration_and_mode_go_with_the_last_live_version(
    client: DirectClient,
) -> None:
    for path in ("/subjects/a", "/subjects/a/versions/latest"):
        await client.register("a", INT)
        await client.put("/config/a", {"compatibility": "NONE"})
        await client.put("/mode/a", {"mode": "READWRITE"})
        await client.delete(path)
        assert (await client.get("/config/a")).code == 40408
        assert (await client.get("/mode/a")).code == 40409


@with_registry
async def test_referenced_versions_stay(client: DirectClient) -> None:
    await client.register("a", {"type": "fixed", "name": "F", "size": 2})
    references = [{"name": "F", "subject": "a", "version": 1}]
    await client.register("b", '{"type":"array","items":"F"}', references=references)
    for path in ("/subjects/a", "/subjects/a/versions/1"):
        refused = await client.delete(path)
        assert (refused.status, refused.code) == (422, 42206)
    assert (await client.get("/subjects/a/versions/1/referencedby")).content == [2]
    await client.delete("/subjects/b")
    assert (await client.get("/subjects/a/versions/1/referencedby")).content == []
    deleted = await client.get("/subjects/a/versions/1/referencedby?deleted=true")
    assert deleted.content == [2]
    assert (await client.delete("/subjects/a")).content == [1]


@with_registry
async def test_a_read_only_subject_cannot_be_deleted(client: DirectClient) -> None:
    await client.register("a", INT)
    await client.put("/mode/a", {"mode": "READONLY"})
    assert (await client.delete("/subjects/a")).code == 42205
    assert (await client.delete("/subjects/a/versions/1")).code == 42205


@with_registry
async def test_modes_are_looked_up_by_subject_context_and_all(client: DirectClient) -> None:
    assert (await client.get("/mode")).content == {"mode": "READWRITE"}
    assert (await client.get("/mode/a")).code == 40409
    await client.put("/mode/:.__GLOBAL:", {"mode": "READONLY"})
    assert (await client.register(":.c:a", INT)).code == 42205
    await client.put("/mode/:.c:", {"mode": "READWRITE"})
    assert (await client.register(":.c:a", INT)).status == 200
    assert (await client.register("a", INT)).code == 42205
    assert (await client.get("/mode/a?defaultToGlobal=true")).content == {"mode": "READONLY"}
    await client.put("/mode/:.__GLOBAL:", {"mode": "READONLY_OVERRIDE"})
    assert (await client.register(":.c:b", INT)).code == 42205
    assert (await client.delete("/mode/:.__GLOBAL:")).content == {"mode": "READONLY_OVERRIDE"}
    assert (await client.delete("/mode/:.__GLOBAL:")).code == 40401
    assert (await client.put("/mode", {"mode": "DANCE"})).code == 42204


@with_registry
async def test_a_recursive_delete_removes_the_modes_below(client: DirectClient) -> None:
    for scope in (":.c:", ":.c:a", "a"):
        await client.put(f"/mode/{scope}", {"mode": "READONLY"})
    assert (await client.delete("/contexts/c/mode?recursive=true")).content == {"mode": "READONLY"}
    assert (await client.get("/mode/:.c:a")).code == 40409
    assert (await client.get("/mode/a")).content == {"mode": "READONLY"}


@with_registry
async def test_import_needs_force_over_live_versions(client: DirectClient) -> None:
    await client.register("a", INT)
    for scope in ("/mode", "/mode/a", "/mode/:.__GLOBAL:"):
        assert (await client.put(scope, {"mode": "IMPORT"})).code == 42205
    assert (await client.put("/mode/a?force=true", {"mode": "IMPORT"})).status == 200
    await client.put("/mode/a", {"mode": "READWRITE"})
    await client.delete("/subjects/a")
    assert (await client.put("/mode/a", {"mode": "IMPORT"})).status == 200
    # The soft-deleted versions are forgotten: their places can be imported.
    assert (await client.get("/subjects?deleted=true")).content == []


@with_registry
async def test_put_changes_the_named_members_only(client: DirectClient) -> None:
    assert (await client.get("/config")).content == {"compatibilityLevel": "BACKWARD"}
    assert (await client.get("/config/a")).code == 40408
    answer = await client.put("/config/a", {"compatibility": "full", "normalize": True})
    assert answer.content == {"compatibility": "FULL", "normalize": True}
    await client.put("/config/a", {"compatibilityGroup": "g"})
    assert (await client.get("/config/a")).content == {
        "compatibilityLevel": "FULL",
        "compatibilityGroup": "g",
        "normalize": True,
    }
    await client.put("/config/a", {"compatibility": None, "normalize": None})
    assert (await client.get("/config/a")).content == {"compatibilityGroup": "g"}
    inherited = (await client.get("/config/a?defaultToGlobal=true")).content
    assert inherited == {"compatibilityGroup": "g", "compatibilityLevel": "BACKWARD"}
    assert (await client.delete("/config/a")).content == {"compatibilityGroup": "g"}
    assert (await client.delete("/config/a")).code == 40401


@with_registry
async def test_bad_levels_and_policies_are_refused(client: DirectClient) -> None:
    assert (await client.put("/config", {"compatibility": "SOME"})).code == 42203
    assert (await client.put("/config", {"compatibilityPolicy": "SOME"})).code == 422
    assert (await client.put("/config/__GLOBAL", {"compatibility": "NONE"})).code == 42208


@with_registry
async def test_levels_are_looked_up_by_subject_context_and_all(client: DirectClient) -> None:
    async def level(subject: str) -> str:
        answer = await client.get(f"/config/{subject}?defaultToGlobal=true")
        return str(answer.content["compatibilityLevel"])

    await client.put("/config/:.__GLOBAL:", {"compatibility": "FULL"})
    assert [await level(":.c:a"), await level("a")] == ["FULL", "FULL"]
    await client.put("/config", {"compatibility": "NONE"})
    await client.put("/contexts/c/config", {"compatibility": "FORWARD"})
    assert [await level(":.c:a"), await level("a")] == ["FORWARD", "NONE"]
    assert (await client.delete("/config")).content == {"compatibilityLevel": "NONE"}
    assert await level("a") == "FULL"


@with_registry
async def test_a_context_is_deleted_when_it_is_empty(client: DirectClient) -> None:
    await client.register(":.c:a", INT)
    assert (await client.get("/contexts")).content == [".", ".c"]
    assert (await client.delete("/contexts/.c")).code == 42211
    await client.delete("/contexts/c/subjects/a")
    assert (await client.delete("/contexts/.c")).code == 42211
    await client.delete("/contexts/c/subjects/a?permanent=true")
    assert (await client.delete("/contexts/.c")).status == 204
    assert (await client.get("/contexts")).content == ["."]
    assert (await client.delete("/contexts/.c")).code == 40401
    assert (await client.delete("/contexts/.")).code == 422
