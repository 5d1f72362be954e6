//! The grants and refusals of a service.

use core::{num::NonZeroU32, time::Duration};

use rma_core::{
    addr::Pid,
    crypto::{KeyBinding, RegionKey, RegionKeySchedule},
    op::OpType,
    region::RegionId,
};

use super::{addresses, after, at, client, name, region, secret, term};
use crate::{
    audit::{Denial, What},
    catalog::Region,
    epoch::Life,
    message::{
        number,
        reply::{Answer, Granted, Refusal, Reply},
        request::{Request, Wanted},
    },
    ops::OpSet,
    peer::Peer,
    policy::Policy,
    service::{Handled, Rate, Service, ServiceConfig},
    time::WallTime,
};

pub(super) const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read", "write"]
lifetime = "2h"

[[allow]]
region = "fleet"
identity = "spiffe://example.org/kv/**"
ops = ["read"]
initiators = ["192.0.2.0/24", "2001:db8::/32"]
lifetime = "10s"
"#;

/// A service with the region `kv/index`, under a key of ones for an hour from the start, of which
/// the next must be announced after 50 minutes.
pub(super) fn service() -> Service<Policy> {
    let policy = Policy::parse(POLICY).unwrap();
    let mut service = Service::new(Life([7; 8]), policy, ServiceConfig::default());
    let hour = term(at(3000), at(3600));
    let (epoch, event) =
        service.publish(after(0), name("kv/index"), region(), &secret(1), hour).unwrap();
    assert_eq!((epoch.number, event.sequence), (1, 1));
    service
}

pub(super) fn wanted(region: &str, ops: &[OpType]) -> Wanted {
    Wanted { name: name(region), ops: ops.iter().copied().collect(), have: None }
}

/// A request of process 7 at 192.0.2.1.
/// Another region of the same host.
fn other() -> Region {
    Region { id: RegionId::from_bits(6), ..region() }
}

pub(super) fn request(regions: Vec<Wanted>) -> Request {
    Request { initiators: addresses(&["192.0.2.1"]), pid: Pid(7), regions }
}

/// Asks about one region, as octets on both ways, and returns the answer.
pub(super) fn ask(service: &mut Service<Policy>, seconds: u64, wanted: Wanted) -> Answer {
    let message = request(vec![wanted]).encode(1);
    let Handled { reply, .. } = service.handle(after(seconds), &client(), &message);
    match Reply::decode(&reply).unwrap() {
        Reply::Answers(mut answers) if answers.len() == 1 => answers.remove(0),
        other => panic!("{other:?}"),
    }
}

pub(super) fn granted(answer: Answer) -> Granted {
    let Answer::Granted(granted) = answer else { panic!("{answer:?}") };
    granted
}

//= 1rma#4.2-bootstrap
//= type=test
//= 1rma#4.2-derived-key
//= type=test
#[test]
fn a_key_is_bound_to_initiator_responder_pid_and_op_as_the_nic_binds_it() {
    let mut service = service();
    let both = [OpType::Read, OpType::Write];
    let granted = granted(ask(&mut service, 0, wanted("kv/index", &both)));
    let grants: Vec<_> =
        granted.grants(&granted.present, addresses(&["192.0.2.1"]), Pid(7)).collect();
    assert_eq!(grants.len(), 2);
    let schedule = RegionKeySchedule::new(&RegionKey::from_bytes([1; 16]));
    for (grant, op_type) in grants.iter().zip(both) {
        let binding = KeyBinding {
            initiator: "192.0.2.1".parse().unwrap(),
            responder: "192.0.2.2".parse().unwrap(),
            pid: Pid(7),
            op_type,
        };
        assert_eq!(grant.key, schedule.derive(&binding));
        assert_eq!((grant.op_type, grant.region, grant.region_len), (op_type, region().id, 4096));
    }
    let none = granted.grants(&granted.present, addresses(&["2001:db8::1"]), Pid(7));
    assert_eq!(none.count(), 0, "a host without an address of the family has no grant");
}

#[test]
fn forbidden_and_unknown_regions_are_answered_alike() {
    let mut service = service();
    let far = at(1 << 30);
    service.publish(after(0), name("secret"), other(), &secret(2), term(far, far)).unwrap();
    let message = |region| request(vec![wanted(region, &[OpType::Read])]).encode(1);
    let forbidden = service.handle(after(0), &client(), &message("secret"));
    let unknown = service.handle(after(0), &client(), &message("nosuch"));
    let unknown_but_allowed = service.handle(after(0), &client(), &message("kv/nosuch"));
    assert_eq!(forbidden.reply, unknown.reply);
    assert_eq!(forbidden.reply, unknown_but_allowed.reply);
    // The log tells them apart.
    let is_known = |handled: &Handled<_>| match handled.events[..] {
        [ref event] => matches!(event.what, What::Denied { why, .. } if why != Denial::NoRegion),
        _ => panic!("one event"),
    };
    assert!(is_known(&forbidden) && !is_known(&unknown) && !is_known(&unknown_but_allowed));
    assert_eq!(service.counters().denied, 3);
}

#[test]
fn an_address_that_is_neither_the_connections_nor_in_a_rule_is_denied() {
    let mut service = service();
    let far = at(1 << 30);
    service.publish(after(0), name("fleet"), other(), &secret(2), term(far, far)).unwrap();
    let mut claim = |initiators: &[&str], region: &str, ops: &[OpType]| {
        let request =
            Request { initiators: addresses(initiators), ..request(vec![wanted(region, ops)]) };
        let Reply::Answers(answers) = service.answer(after(0), &client(), &request).reply else {
            panic!("it was looked at")
        };
        answers.into_iter().next().unwrap()
    };
    let read = [OpType::Read];
    assert_eq!(claim(&["192.0.2.9"], "kv/index", &read), Answer::Denied, "another's address");
    assert!(matches!(claim(&["192.0.2.9"], "fleet", &read), Answer::Granted(_)), "in the rule");
    assert_eq!(claim(&["198.51.100.1"], "fleet", &read), Answer::Denied);
    assert_eq!(claim(&["192.0.2.1"], "fleet", &[OpType::Write]), Answer::Denied);
    // The region is at an IPv4 address. Only who may have it learns that.
    assert_eq!(claim(&["2001:db8::1"], "fleet", &read), Answer::NoAddressOfFamily);
    assert_eq!(claim(&["2001:db8::1"], "fleet", &[OpType::Write]), Answer::Denied);
    let both = ["2001:db8::1", "192.0.2.1"];
    let Answer::Granted(granted) = claim(&both, "fleet", &read) else { panic!("granted") };
    assert_eq!(granted.responder, "192.0.2.2".parse().unwrap());
    assert_eq!(granted.present.lifetime, Duration::from_secs(10), "the rule's");
}

#[test]
fn the_log_says_which_addresses_were_compared_and_why_a_region_was_denied() {
    let mut service = service();
    let mut line = |initiators: &[&str], region: &str, ops: &[OpType]| {
        let request =
            Request { initiators: addresses(initiators), ..request(vec![wanted(region, ops)]) };
        let handled = service.answer(after(0), &client(), &request);
        handled.events.iter().map(ToString::to_string).collect::<String>()
    };
    let read = [OpType::Read];
    for (line, says) in [
        (
            line(&["192.0.2.9"], "kv/index", &read),
            r#""initiator":"192.0.2.9","why":"other-address""#,
        ),
        (line(&["192.0.2.9"], "kv/index", &[OpType::Rekey]), r#""why":"no-rule""#),
        (line(&["192.0.2.1"], "kv/nosuch", &read), r#""initiator":"192.0.2.1","why":"no-region""#),
        (
            line(&["192.0.2.9", "2001:db8::9"], "kv/index", &read),
            r#""initiator":"192.0.2.9, 2001:db8::9","why":"other-address""#,
        ),
        (line(&["2001:db8::9"], "kv/index", &read), r#""event":"no-address-of-family""#),
        (line(&["2001:db8::9"], "kv/index", &read), r#""initiator":"2001:db8::9""#),
    ] {
        // The connection's own address, and the one that keys were asked for.
        assert!(line.contains(r#""address":"192.0.2.1""#) && line.contains(says), "{line}");
    }
}

#[test]
fn answers_come_in_the_order_of_the_request_and_one_refusal_spoils_no_other() {
    let mut service = service();
    let regions = ["nosuch", "kv/index", "kv/nosuch", "kv/index"];
    let regions = regions.map(|it| wanted(it, &[OpType::Read])).to_vec();
    let handled = service.answer(after(0), &client(), &request(regions));
    let Reply::Answers(answers) = handled.reply else { panic!("it was looked at") };
    let kinds: Vec<bool> = answers.iter().map(|it| matches!(it, Answer::Granted(_))).collect();
    assert_eq!(kinds, [false, true, false, true]);
    let numbers: Vec<u64> = handled.events.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, [2, 3, 4, 5], "an event for each, without gaps");
}

#[test]
fn a_certificate_that_has_ended_gives_nothing_by_the_wall_clock_alone() {
    let mut service = service();
    let peer = client();
    let ends = (peer.not_after.unix_millis() - super::NOON_MS) as u64 / 1000;
    let message = request(vec![wanted("kv/index", &[OpType::Read])]).encode(1);
    let mut refused = |now| match Reply::decode(&service.handle(now, &peer, &message).reply) {
        Ok(Reply::Refused(Refusal::CertificateEnded { seen })) => Some(seen),
        Ok(Reply::Answers(_)) => None,
        other => panic!("{other:?}"),
    };
    // The wall clock is stepped, and nothing else has changed.
    let mut stepped = after(0);
    stepped.wall = WallTime::from_unix_millis(peer.not_after.unix_millis());
    assert_eq!(refused(stepped), Some(stepped.wall), "and says which time it saw");
    assert_eq!(refused(after(ends - 1)), None);
    assert_eq!(refused(after(ends)), Some(after(ends).wall));
    assert_eq!(service.counters().certificate_ended, 2);
}

#[test]
fn a_wall_clock_that_is_stepped_by_a_day_moves_no_lifetime() {
    let mut service = service();
    let mut lifetime = |step_ms: i64| {
        let mut now = after(60);
        now.wall = WallTime::from_unix_millis(now.wall.unix_millis() + step_ms);
        let request = request(vec![wanted("kv/index", &[OpType::Read])]);
        let Reply::Answers(mut answers) = service.answer(now, &client(), &request).reply else {
            panic!("it was looked at")
        };
        granted(answers.remove(0)).present.lifetime
    };
    let day = 24 * 3_600_000;
    assert_eq!([0, day, -day].map(&mut lifetime), [Duration::from_secs(3540); 3]);
}

#[test]
fn a_malformed_request_is_refused_by_the_name_of_the_field_and_counted() {
    let mut service = service();
    let mut refusal = |message: &[u8]| {
        let Handled { reply, events } = service.handle(after(0), &client(), message);
        assert!(matches!(events[..], [ref it] if matches!(it.what, What::Malformed { .. })));
        (number(&reply), Reply::decode(&reply).unwrap())
    };
    let wrong =
        |number, field: &str| (number, Reply::Refused(Refusal::Wrong { field: field.into() }));
    assert_eq!(refusal(&[]), wrong(None, ""));
    assert_eq!(refusal(&[0xa2, 0, 1, 1, 0x20]), wrong(None, "number"));
    // Under the number of the request, whatever is wrong with the rest of it.
    assert_eq!(refusal(&[0xa2, 0, 1, 1, 9]), wrong(Some(9), "initiators"));
    assert_eq!(refusal(&[0xa3, 0, 1, 1, 9, 3, 0x20]), wrong(Some(9), "pid"));
    let name = [0xa3, 0, 1, 1, 9, 4, 0x81, 0xa1, 0, 0x60];
    assert_eq!(refusal(&name), wrong(Some(9), "regions[0].name"));
    assert_eq!(refusal(&[0xa2, 0, 2, 1, 9]), (None, Reply::Refused(Refusal::Version)));
    let counters = service.counters();
    assert_eq!((counters.malformed, counters.other_version, counters.messages), (5, 1, 6));
}

#[test]
fn a_client_that_asks_too_much_is_told_when_to_come_back_and_is_served_then() {
    let policy = Policy::parse(POLICY).unwrap();
    let rate = |per_second, burst| Rate { per_second: NonZeroU32::new(per_second).unwrap(), burst };
    let config = ServiceConfig { of_client: rate(10, 40), ..ServiceConfig::default() };
    let mut service = Service::new(Life([7; 8]), policy, config);
    let message = request(vec![wanted("kv/index", &[OpType::Read]); 20]).encode(1);
    let retry = |service: &mut Service<_>, seconds, peer: &Peer| match Reply::decode(
        &service.handle(after(seconds), peer, &message).reply,
    )
    .unwrap()
    {
        Reply::Answers(_) => None,
        Reply::Refused(Refusal::NotNow { retry }) => Some(retry),
        other => panic!("{other:?}"),
    };
    let me = client();
    assert_eq!([0, 0].map(|at| retry(&mut service, at, &me)), [None, None]);
    let wait = retry(&mut service, 0, &me).expect("its burst is used up");
    assert!((Duration::from_secs(2)..=Duration::from_secs(4)).contains(&wait), "{wait:?}");
    let elsewhere = Peer { address: "192.0.2.5".parse().unwrap(), ..client() };
    assert_eq!(retry(&mut service, 0, &elsewhere), None, "others are served on");
    assert_eq!(retry(&mut service, 2, &me), None);
    // Noise costs as well.
    for _ in 0..100 {
        service.handle(after(4), &me, b"noise");
    }
    assert_eq!(service.counters().malformed, 20, "as many as the allowance holds, of 100");
    assert_eq!(service.counters().not_now, 1 + 80);
}

#[test]
fn a_reply_whose_events_cannot_be_written_is_not_sent_and_the_client_comes_back() {
    let mut service = service();
    let message = request(vec![wanted("kv/index", &[OpType::Read])]).encode(7);
    let reply = service.unrecorded(&message);
    let Ok(Reply::Refused(Refusal::NotNow { retry })) = Reply::decode(&reply) else {
        panic!("not now")
    };
    assert_eq!(number(&reply), Some(7));
    assert!(retry >= Duration::from_secs(1) && retry < Duration::from_secs(2), "{retry:?}");
    assert_eq!(service.counters().not_now, 1);
}

#[test]
fn twenty_thousand_cold_clients_are_all_served_soon() {
    let mut service = service();
    let mut waiting: Vec<(Duration, u32)> =
        (0..20_000).map(|number| (Duration::ZERO, number)).collect();
    let regions = vec![wanted("kv/index", &[OpType::Read]); 4];
    let (mut last, mut tries) = (Duration::ZERO, 0_u64);
    while let Some((when, number)) = waiting.pop() {
        tries += 1;
        let mut now = after(0);
        now.boot = now.boot + when;
        let [.., high, low] = number.to_be_bytes();
        let peer = Peer { address: [10, 0, high, low].into(), ..client() };
        let initiators = peer.address.into();
        let request = Request { initiators, ..request(regions.clone()) };
        match service.answer(now, &peer, &request).reply {
            Reply::Answers(answers) => {
                assert!(answers.iter().all(|it| matches!(it, Answer::Granted(_))));
                last = last.max(when);
            }
            Reply::Refused(Refusal::NotNow { retry }) => {
                let at = waiting.partition_point(|it| it.0 > when + retry);
                waiting.insert(at, (when + retry, number));
            }
            other => panic!("{other:?}"),
        }
    }
    // 80,000 regions at 20,000 a second and a burst of 20,000 take 3 s at the least.
    assert!(last < Duration::from_secs(15), "the last was served after {last:?}");
    assert_eq!(service.counters().granted, 80_000);
    assert!(tries < 20 * 20_000, "{tries} tries");
}

#[test]
fn no_key_is_shown_by_anything_but_the_reply() {
    let mut service = service();
    let all: OpSet = [OpType::Read, OpType::Write].into_iter().collect();
    let wanted = Wanted { name: name("kv/index"), ops: all, have: None };
    let Handled { reply, events } = service.answer(after(0), &client(), &request(vec![wanted]));
    let mut shown = format!("{service:?} {reply:?} {events:?}");
    events.iter().for_each(|event| shown.push_str(&event.to_string()));
    let Reply::Answers(answers) = reply else { panic!("it was looked at") };
    let [Answer::Granted(granted)] = &answers[..] else { panic!("granted") };
    let keys = granted.present.keys.iter().map(|(_, key)| *key.derived_key().expose());
    for key in keys.chain([[1; 16]]) {
        let hex: String = key.iter().map(|octet| format!("{octet:02x}")).collect();
        let list = format!("{key:?}");
        assert!(!shown.contains(&hex) && !shown.contains(&list[1..list.len() - 1]));
    }
    assert!(shown.contains("GrantedKey(secret)") && shown.contains("RegionKeySchedule(secret)"));
}
