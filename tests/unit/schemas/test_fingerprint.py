from hashlib import md5

from ottla.schemas.fingerprint import fingerprint, guid_text
from ottla.schemas.schema import Metadata, Rule, RuleSet, Schema, SchemaReference


def test_the_guid_of_a_bare_text_is_its_md5() -> None:
    assert fingerprint(Schema('"string"')) == md5(b'"string"').digest()
    assert guid_text(bytes(range(16))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_references_add_their_name_their_subject_and_four_bytes_of_version() -> None:
    schema = Schema("t", references=(SchemaReference("n", "s", 258),))
    assert fingerprint(schema) == md5(b"tns\x00\x00\x01\x02").digest()


def test_metadata_add_their_members_in_order_of_names() -> None:
    metadata = Metadata({"b": ("y", "x"), "a": ()}, {"q": "2", "p": "1"}, ("t", "s"))
    assert fingerprint(Schema("t", metadata=metadata)) == md5(b"t\x01abxyp1q2st").digest()


def test_empty_metadata_differ_from_no_metadata() -> None:
    assert fingerprint(Schema("t", metadata=Metadata())) == md5(b"t\x01").digest()


def test_rules_add_their_members_by_phase() -> None:
    rule = Rule(
        "n", "k", "m", "t", "d", ("b", "a"), {"q": "2", "p": "1"}, "e", "s", "f", disabled=True
    )
    rule_set = RuleSet((Rule("first"),), (rule,), (Rule("last"),), "when")
    expected = md5(b"t\x01firstndkmtabp1q2esf\x01lastwhen").digest()
    assert fingerprint(Schema("t", rule_set=rule_set)) == expected
