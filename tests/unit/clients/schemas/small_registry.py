"""A registry in a dict, behind a scripted server: ids, versions and references, without rules."""

from typing import Any
from uuid import UUID

from tests.unit.clients.schemas.scripted_server import ScriptedServer, Seen

NOT_FOUND = (404, {"error_code": 40403, "message": "Schema not found"})


class SmallRegistry:
    """Use `server` in `with`. `ids` has the registered bodies; each GUID is made of the id."""

    def __init__(self) -> None:
        self.ids: list[dict[str, Any]] = []
        self.versions: dict[str, list[int]] = {}
        self.server = ScriptedServer(self.answer)

    def answer(self, seen: Seen) -> tuple[int, Any]:  # noqa: PLR0911 - one row for each path
        path = seen.path.partition("?")[0].strip("/").split("/")
        match seen.method, path:
            case "POST", ["subjects", subject, "versions"]:
                return 200, self._register(subject, seen.body)
            case "POST", ["subjects", subject]:
                known = seen.body in self.ids and self.ids.index(seen.body) + 1
                if not known or known not in self.versions.get(subject, []):
                    return NOT_FOUND
                return 200, self._full(subject, self.versions[subject].index(known))
            case "GET", ["subjects", subject, "versions", version]:
                place = -1 if version == "latest" else int(version) - 1
                if subject not in self.versions:
                    return NOT_FOUND
                return 200, self._full(subject, place % len(self.versions[subject]))
            case "GET", ["subjects", subject, "metadata"]:
                return 200, self._full(subject, 0)
            case "GET", ["schemas", "ids", number] if int(number) <= len(self.ids):
                return 200, {**self.ids[int(number) - 1], "guid": guid(int(number))}
            case "GET", ["schemas", "guids", text] if UUID(text).int <= len(self.ids):
                return 200, self.ids[UUID(text).int - 1]
        return NOT_FOUND

    def _register(self, subject: str, body: Any) -> dict[str, Any]:
        if body not in self.ids:
            self.ids.append(body)
        number = self.ids.index(body) + 1
        versions = self.versions.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return {"id": number, "guid": guid(number), "version": versions.index(number) + 1}

    def _full(self, subject: str, place: int) -> dict[str, Any]:
        number = self.versions[subject][place]
        return {
            **self.ids[number - 1],
            "id": number,
            "guid": guid(number),
            "subject": subject,
            "version": place + 1,
        }


def guid(number: int) -> str:
    return str(UUID(int=number))
