"""The effect of a new schema on a subject: its level's verdict, and the order of deployment."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.cli.schemas.schema_check import (
    BACKWARD,
    DEFAULT_LEVEL,
    FORWARD,
    EarlierVersion,
    Finding,
    compare,
    directions_of,
)
from ottla.cli.schemas.schema_registry import config_of, versions_of
from ottla.cli.schemas.schema_sources import LocalSchema
from ottla.cli.support.exit_codes import say
from ottla.cli.support.output import OutputFormat, show, show_one
from ottla.clients.schemas.registry_calls import RegisteredSchema
from ottla.clients.schemas.registry_client import RegistryClient

ORDER_BY_DIRECTIONS: Final = {
    (True, True): "consumers and producers in any order",
    (True, False): "consumers first, then producers",
    (False, True): "producers first, then consumers",
    (False, False): "not in place: write to a new topic, and let consumers move to it",
}
"""The order of deployment, by whether a change is backward and forward compatible."""


def findings_against(client: RegistryClient, subject: str, local: LocalSchema) -> list[Finding]:
    """Return why the subject's level refuses a schema."""
    level = str(config_of(client, subject).get("compatibilityLevel") or DEFAULT_LEVEL)
    versions = versions_of(client, subject)
    chosen = versions if level.endswith("_TRANSITIVE") else versions[-1:]
    return [
        finding
        for one in chosen
        for direction in directions_of(level)
        for finding in compare(local, _earlier(client, one), direction)
    ]


def _earlier(client: RegistryClient, found: RegisteredSchema) -> EarlierVersion:
    return EarlierVersion(f"version {found.version}", client.parsed(found.schema))


@dataclass(frozen=True, slots=True)
class EvolutionPlan:
    """A new schema beside the versions of a subject."""

    level: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)
    """Findings that the subject's level does not allow."""

    @property
    def is_allowed(self) -> bool:
        """Whether the subject's level allows the schema."""
        return not self.refusals

    @property
    def order(self) -> str:
        """The order of deployment after the latest version."""
        if not self.rows:
            return "the subject is new: producers and consumers in any order"
        latest = self.rows[-1]
        return ORDER_BY_DIRECTIONS[latest["BACKWARD"], latest["FORWARD"]]


def plan_evolution(client: RegistryClient, subject: str, local: LocalSchema) -> EvolutionPlan:
    """Compare a schema with all versions of a subject, in both directions."""
    level = str(config_of(client, subject).get("compatibilityLevel") or DEFAULT_LEVEL)
    plan = EvolutionPlan(level)
    versions = versions_of(client, subject)
    for at, found in enumerate(versions, 1):
        earlier = _earlier(client, found)
        findings = {one: compare(local, earlier, one) for one in (BACKWARD, FORWARD)}
        plan.rows.append(
            {
                "VERSION": found.version,
                "BACKWARD": not findings[BACKWARD],
                "FORWARD": not findings[FORWARD],
                "FIRST-REASON": _first_message(findings),
            }
        )
        if at == len(versions) or level.endswith("_TRANSITIVE"):
            plan.refusals.extend(
                one for direction in directions_of(level) for one in findings[direction]
            )
    return plan


def _first_message(findings: Mapping[str, Sequence[Finding]]) -> str | None:
    found = (one.message for direction in (BACKWARD, FORWARD) for one in findings[direction])
    return next(found, None)


def show_plan(plan: EvolutionPlan, subject: str, form: OutputFormat) -> None:
    """Write a plan to stdout, and the refusals to stderr."""
    if form is OutputFormat.JSON:
        versions = [
            {name.lower().replace("-", "_"): value for name, value in row.items()}
            for row in plan.rows
        ]
        row = {"SUBJECT": subject, "LEVEL": plan.level, "ALLOWED": plan.is_allowed}
        show_one({**row, "DEPLOY": plan.order, "VERSIONS": versions}, form)
    else:
        show(plan.rows, ("VERSION", "BACKWARD", "FORWARD", "FIRST-REASON"), form)
        sys.stdout.write(f"\nlevel   {plan.level}\ndeploy  {plan.order}\n")
    for one in plan.refusals:
        say(f"refused by {plan.level}, {one.earlier}: {one.message}; {one.way_out}")
