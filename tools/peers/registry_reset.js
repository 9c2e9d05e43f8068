// Empties the registry before each test of a suite that was written for a mock of its own.
// The mock knows no compatibility, so the level is NONE.
const url = process.env.REGISTRY_URL;
const ROUNDS_MAX = 10;

async function call(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  return response.json();
}

// A subject that others refer to can be deleted after them, so there are several rounds.
beforeEach(async () => {
  for (let round = 0; round < ROUNDS_MAX; round++) {
    const subjects = await call("GET", "/subjects?deleted=true");
    if (subjects.length === 0) break;
    for (const subject of subjects) {
      const path = `/subjects/${encodeURIComponent(subject)}`;
      await call("DELETE", path);
      await call("DELETE", `${path}?permanent=true`);
      await call("DELETE", `/config/${encodeURIComponent(subject)}`);
    }
  }
  await call("PUT", "/config", { compatibility: "NONE" });
});
