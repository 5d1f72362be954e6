//! Policies as people write them, and what they decide.

use core::time::Duration;

use proptest::prelude::*;
use rma_core::op::OpType;

use super::{after, client, name};
use crate::{
    limits::LIFETIME_MAX,
    ops::OpSet,
    peer::{Peer, Serial},
    policy::{Ask, Authorizer, Decision, Policy, Verdict},
};

const KV: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read"]
initiators = ["192.0.2.0/24", "2001:db8::/32"]
until = "2027-01-01T00:00:00Z"
lifetime = "1h"

[[allow]]
region = "kv/index"
identity = "spiffe://example.org/kv/server"
ops = ["read", "write", "rekey"]

[[refuse]]
identity = "spiffe://example.org/kv/client/13"

[[refuse]]
identity = "spiffe://example.org/kv/client/7"
serial = "00ff"
"#;

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn peer(identity: &str) -> Peer {
    Peer { identity: identity.parse().unwrap(), ..client() }
}

/// Returns the decision of `policy` on these ops of a region, from an address or from any.
fn decide(policy: &Policy, peer: &Peer, region: &str, ops: &[OpType], from: &str) -> Decision {
    let ops: OpSet = ops.iter().copied().collect();
    let initiator = (!from.is_empty()).then(|| from.parse().unwrap());
    policy.decide(&Ask { peer, region: &name(region), ops, initiator }, after(0).wall)
}

/// For how long, in seconds; `None` if it is denied.
fn seconds(decision: Decision) -> Option<u64> {
    match decision {
        Decision::Denied => None,
        Decision::Allowed { lifetime, .. } => Some(lifetime.as_secs()),
    }
}

#[test]
fn a_request_that_no_rule_allows_is_denied() {
    let (policy, me) = (policy(KV), client());
    let read = [OpType::Read];
    let may = |region, ops: &[OpType], from| seconds(decide(&policy, &me, region, ops, from));
    assert_eq!(may("kv/values", &read, "192.0.2.200"), Some(3600));
    assert_eq!(may("kv/values", &read, "2001:db8::7"), Some(3600));
    assert_eq!(may("kv/values", &read, ""), Some(3600), "from some address");
    for (region, ops, from) in [
        ("kv/a/b", &read[..], "192.0.2.1"),
        ("other", &read, "192.0.2.1"),
        ("kv/values", &[OpType::Write], "192.0.2.1"),
        ("kv/values", &[OpType::Read, OpType::Write], "192.0.2.1"),
        ("kv/values", &read, "198.51.100.1"),
        ("kv/values", &[], "192.0.2.1"),
    ] {
        assert_eq!(may(region, ops, from), None, "{region} {ops:?} {from}");
    }
}

#[test]
fn without_initiators_only_the_connections_own_address_is_believed() {
    let (policy, server) = (policy(KV), peer("spiffe://example.org/kv/server"));
    let may = |from| seconds(decide(&policy, &server, "kv/index", &[OpType::Rekey], from));
    assert_eq!(may("192.0.2.1"), Some(LIFETIME_MAX.as_secs()));
    assert_eq!(may("192.0.2.9"), None, "another's, in the same network");
    assert_eq!(may("2001:db8::1"), None, "of the other family");
}

#[test]
fn a_refusal_stands_against_all_rules_and_can_be_of_one_certificate() {
    let (policy, read) = (policy(KV), [OpType::Read]);
    let may = |peer: &Peer| seconds(decide(&policy, peer, "kv/values", &read, "192.0.2.1"));
    assert_eq!(may(&peer("spiffe://example.org/kv/client/13")), None);
    assert_eq!(may(&client()), Some(3600));
    assert_eq!(may(&Peer { serial: Serial::new(&[0xff]).unwrap(), ..client() }), None);
    assert_eq!(may(&peer("spiffe://example.com/kv/client/7")), None, "another trust domain");
}

#[test]
fn a_key_is_never_given_beyond_until_and_then_not_at_all() {
    let (policy, me) = (policy(KV), client());
    let ask = Ask {
        peer: &me,
        region: &name("kv/index"),
        ops: OpSet::NONE.with(OpType::Read),
        initiator: None,
    };
    let until = "2027-01-01T00:00:00Z";
    let left = (1_798_761_600_000 - super::NOON_MS) as u64 / 1000;
    let may = |at| seconds(policy.decide(&ask, after(at).wall));
    assert_eq!(may(left - 3601), Some(3600));
    assert_eq!(may(left - 5), Some(5));
    assert_eq!(may(left), None);
    assert_eq!(policy.lapsed(after(left - 1).wall).count(), 0);
    let lapsed: Vec<_> = policy.lapsed(after(left).wall).collect();
    assert_eq!(lapsed.len(), 1);
    assert_eq!((lapsed[0].0.number, lapsed[0].1.to_string()), (1, until.to_owned()));
    assert_eq!(policy.epoch_max(ask.region, after(left - 5).wall), Duration::from_secs(5));
    // The rule that has ended shortens no epoch any longer.
    assert_eq!(policy.epoch_max(ask.region, after(left).wall), LIFETIME_MAX);
}

#[test]
fn explain_names_the_rule_that_decides_and_what_keeps_the_others_from_it() {
    let (policy, me) = (policy(KV), client());
    let region = name("kv/index");
    let ops = OpSet::NONE.with(OpType::Read);
    let initiator = Some("192.0.2.1".parse().unwrap());
    let ask = Ask { peer: &me, region: &region, ops, initiator };
    let text = policy.explain(&ask, after(0).wall).to_string();
    assert_eq!(
        text,
        "allowed by allow 1 (line 2) for 3600 s\n  \
         allow 1 (line 2) allows READ for 3600 s\n  \
         allow 2 (line 10) is about other identities\n"
    );
    let initiator = Some("198.51.100.1".parse().unwrap());
    let text = policy.explain(&Ask { initiator, ..ask }, after(0).wall).to_string();
    assert!(
        text.starts_with("denied: no rule") && text.contains("bound to 198.51.100.1"),
        "{text}"
    );
    let ops = OpSet::NONE.with(OpType::Write);
    let text = policy.explain(&Ask { ops, ..ask }, after(0).wall).to_string();
    assert!(text.contains("allow 1 (line 2) is about other ops"), "{text}");
    let text = policy.explain(&ask, after(1 << 32).wall).to_string();
    assert!(text.contains("ended at 2027-01-01T00:00:00Z"), "{text}");
    let refused = peer("spiffe://example.org/kv/client/13");
    let text = policy.explain(&Ask { peer: &refused, ..ask }, after(0).wall).to_string();
    assert!(text.starts_with("denied by refuse 1 (line 15)\n"), "{text}");
    let elsewhere = name("x");
    let explained = policy.explain(&Ask { region: &elsewhere, ..ask }, after(0).wall);
    assert!(explained.rules.iter().all(|it| it.verdict == Verdict::OtherRegion));
}

#[test]
fn overlapping_rules_give_what_the_most_generous_gives_of_each_op() {
    let rule = |ops: &str, lifetime: &str| {
        format!(
            "[[allow]]\nregion = \"**\"\nidentity = \"spiffe://example.org/**\"\n\
             ops = [{ops}]\nlifetime = \"{lifetime}\"\n"
        )
    };
    let text = [rule("\"read\"", "10s"), rule("\"read\", \"write\"", "5s"), rule("\"read\"", "7s")];
    let (policy, me) = (policy(&text.concat()), client());
    let may = |ops: &[OpType]| match decide(&policy, &me, "a/b", ops, "192.0.2.1") {
        Decision::Denied => None,
        Decision::Allowed { lifetime, rule } => Some((lifetime.as_secs(), rule.unwrap().number)),
    };
    assert_eq!(may(&[OpType::Read]), Some((10, 1)));
    assert_eq!(may(&[OpType::Write]), Some((5, 2)));
    assert_eq!(may(&[OpType::Read, OpType::Write]), Some((5, 2)), "all ops, so the least");
    assert_eq!(may(&[OpType::Read, OpType::Notify]), None);
}

#[test]
fn an_invalid_policy_is_refused_by_rule_line_field_and_value() {
    let rule = |change: &str, to: &str| {
        let good = "# one\n[[allow]]\nregion = \"kv/*\"\nidentity = \"spiffe://example.org/a\"\n\
                    ops = [\"read\"]\ninitiators = [\"192.0.2.0/24\"]\nlifetime = \"1h\"\n\
                    until = \"2027-01-01T00:00:00Z\"\n";
        assert!(Policy::parse(good).is_ok() && good.contains(change), "{change}");
        good.replacen(change, to, 1)
    };
    for (text, says) in [
        (String::new(), "the policy is empty"),
        ("# nothing yet\n".into(), "the policy is empty"),
        ("\0".into(), "cannot be read"),
        ("allow = 3".into(), "cannot be read"),
        ("[[permit]]\n".into(), "unknown field `permit`"),
        (rule("until", "untill"), "unknown field `untill`"),
        (rule("ops = [\"read\"]\n", ""), "missing field `ops`"),
        (rule("\"kv/*\"", "\"kv-*\""), "allow 1 (line 2): region = \"kv-*\": '*' at octet 0"),
        (rule("\"kv/*\"", "\"kv/../*\""), "region = \"kv/../*\": segment \"..\""),
        (rule("\"kv/*\"", "\"\""), "region = \"\": a name of 0 octets"),
        (rule("example.org/a", "*/a"), "identity = \"spiffe://*/a\": '*' in the trust domain"),
        (rule("spiffe://example.org/a", "kv"), "identity = \"kv\": it does not begin"),
        (rule("\"read\"", ""), "ops = \"[]\": 0 entries"),
        (rule("\"read\"", "\"READ\""), "ops = \"READ\": no type of op"),
        (rule("\"192.0.2.0/24\"", ""), "initiators = \"[]\": 0 entries"),
        (rule("192.0.2.0/24", "192.0.2.1/24"), "192.0.2.0/24 would be one"),
        (rule("192.0.2.0/24", "192.0.2.0/33"), "initiators = \"192.0.2.0/33\": no address"),
        (rule("192.0.2.0/24", "*"), "initiators = \"*\": no address"),
        (rule("192.0.2.0/24", "::ffff:192.0.2.0/120"), "no address or prefix"),
        (rule("\"1h\"", "\"25h\""), "lifetime = \"25h\": no lifetime"),
        (rule("\"1h\"", "\"0s\""), "lifetime = \"0s\": no lifetime"),
        (rule("\"1h\"", "\"+1h\""), "lifetime = \"+1h\": no lifetime"),
        (rule("\"1h\"", "\"1d\""), "lifetime = \"1d\": no lifetime"),
        (rule("\"1h\"", "\"\""), "lifetime = \"\": no lifetime"),
        (rule("\"1h\"", "\"99999999999999999999h\""), "no lifetime"),
        (rule("\"1h\"", "\"1é\""), "no lifetime"),
        (rule("\"1h\"", "3600"), "cannot be read"),
        (rule("\"2027-01-01T00:00:00Z\"", "2027-01-01"), "until = \"2027-01-01\": no date with"),
        (rule("T00:00:00Z", "T00:00:00"), "until = \"2027-01-01T00:00:00\": no date with"),
        (rule("01-01T", "13-01T"), "no date with"),
        (rule("\"2027-01-01T00:00:00Z\"", "7"), "until = \"7\": no date with"),
        (
            "[[refuse]]\nidentity = \"spiffe://example.org/*\"\n".into(),
            "refuse 1 (line 1): identity = \"spiffe://example.org/*\": character '*'",
        ),
        (
            "[[refuse]]\nidentity = \"spiffe://example.org/a\"\nserial = \"0x1\"\n".into(),
            "serial = \"0x1\": it is not an even number",
        ),
        ("#".repeat((1 << 20) + 1), "a policy of 1048577 octets"),
        (
            "[[refuse]]\nidentity = \"spiffe://example.org/a\"\n".repeat(1025),
            "1025 rules that refuse",
        ),
    ] {
        let error = Policy::parse(&text).err().unwrap_or_else(|| panic!("{says}")).to_string();
        assert!(error.contains(says), "{error}\n{says}");
    }
    assert!(Policy::parse("allow = []").is_ok(), "what denies everything can be said");
}

#[test]
fn a_date_can_be_written_as_a_text_or_as_toml_has_it_and_in_any_zone() {
    for until in [
        "\"2026-11-23T12:00:30Z\"",
        "2026-11-23T12:00:30Z",
        "2026-11-23T13:30:30+01:30",
        "2026-11-22T23:00:30-13:00",
    ] {
        let text = format!(
            "[[allow]]\nregion = \"a\"\nidentity = \"spiffe://example.org/**\"\n\
             ops = [\"read\"]\nuntil = {until}\n"
        );
        let may = decide(&policy(&text), &client(), "a", &[OpType::Read], "192.0.2.1");
        assert_eq!(seconds(may), Some(30), "{until}");
    }
}

#[test]
fn a_policy_withdraws_from_the_regions_of_rules_that_are_gone_and_of_refused_identities() {
    let (old, index, values) = (policy(KV), name("kv/index"), name("kv/values"));
    let withdraws = |text: &str| {
        let next = policy(text);
        [&index, &values, &name("x")].map(|region| old.withdraws(&next, region))
    };
    assert_eq!(withdraws(KV), [false; 3]);
    assert_eq!(withdraws(&format!("# moved\n{KV}")), [false; 3], "lines do not count");
    assert_eq!(withdraws("allow = []"), [true, true, false]);
    let server = &KV[KV.find("[[allow]]\nregion = \"kv/index\"").unwrap()..];
    assert_eq!(withdraws(server), [true, true, false], "the clients' rule is gone");
    assert_eq!(withdraws(&KV.replace(", \"rekey\"", "")), [true, false, false]);
    assert_eq!(withdraws(&KV.replace("1h", "2h")), [true, true, false], "changed counts as gone");
    let refusing = format!("{KV}\n[[refuse]]\nidentity = \"spiffe://example.org/kv/server\"\n");
    assert_eq!(withdraws(&refusing), [true, false, false]);
    let stranger = format!("{KV}\n[[refuse]]\nidentity = \"spiffe://example.com/a\"\n");
    assert_eq!(withdraws(&stranger), [false; 3]);
}

prop_compose! {
    fn a_rule()(
        region in prop_oneof!["a", "a/b", "\\*", "a/\\*", "\\*\\*", "a/\\*\\*"],
        path in prop_oneof!["\\*", "\\*\\*", "kv/\\*\\*", "kv/client/7"],
        ops in prop::sample::subsequence(vec!["\"read\"", "\"write\"", "\"rekey\""], 1..=3),
        net in prop::option::of(prop_oneof!["192\\.0\\.2\\.0/24", "0\\.0\\.0\\.0/0", "10\\.0\\.0\\.0/8"]),
        lifetime in 1_u32..=9,
        until in prop::option::of(20_u32..=30),
    ) -> String {
        let net = net.map(|it| format!("initiators = [\"{it}\"]\n")).unwrap_or_default();
        let until = until.map(|day| format!("until = 2026-11-{day}T00:00:00Z\n")).unwrap_or_default();
        let ops = ops.join(",");
        format!(
            "[[allow]]\nregion = \"{region}\"\nidentity = \"spiffe://example.org/{path}\"\n\
             ops = [{ops}]\nlifetime = \"{lifetime}s\"\n{net}{until}"
        )
    }
}

proptest! {
    #[test]
    fn one_rule_more_never_takes_anything_away(
        rules in prop::collection::vec(a_rule(), 0..5),
        more in a_rule(),
    ) {
        let none = if rules.is_empty() { "allow = []" } else { "" };
        let before = policy(&format!("{none}{}", rules.concat()));
        let after_it = policy(&format!("{}{more}", rules.concat()));
        let me = client();
        for region in ["a", "a/b", "a/b/c"] {
            for ops in [&[OpType::Read][..], &[OpType::Read, OpType::Write], &[OpType::Rekey]] {
                for from in ["", "192.0.2.1", "192.0.2.9", "10.1.1.1"] {
                    let [less, more] = [&before, &after_it]
                        .map(|policy| seconds(decide(policy, &me, region, ops, from)));
                    prop_assert!(less <= more, "{region} {ops:?} {from}: {less:?} {more:?}");
                }
            }
            prop_assert!(!before.withdraws(&after_it, &name(region)));
        }
    }
}
