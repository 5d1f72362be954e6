//! Lines of the audit log.

use rma_core::op::OpType;
use serde_json::Value;

use super::{
    after, client, name,
    service::{request, service, wanted},
};
use crate::{
    audit::{Event, What},
    message::malformed::Malformed,
};

/// An event's line as JSON.
fn line(event: &Event) -> Value {
    let line = event.to_string();
    assert!(!line.contains('\n'), "{line}");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

//= 1rma#4.2-rotation-is-logged
//= type=test
#[test]
fn a_grant_says_who_got_what_by_which_rule_and_until_when() {
    let mut service = service();
    let regions = vec![wanted("kv/index", &[OpType::Read, OpType::Write])];
    let events = service.answer(after(1), &client(), &request(regions)).events;
    assert_eq!(
        events[0].to_string(),
        "{\"life\":\"0707070707070707\",\"sequence\":2,\"event\":\"granted\",\
         \"wall\":\"2026-11-23T12:00:01Z\",\"boot_ns\":1000000000,\
         \"identity\":\"spiffe://example.org/kv/client/7\",\"serial\":\"0a1b\",\
         \"address\":\"192.0.2.1\",\"region\":\"kv/index\",\"ops\":\"READ,WRITE\",\"pid\":7,\
         \"initiator\":\"192.0.2.1\",\"epoch\":\"0707070707070707-1\",\"lifetime_ms\":3599000,\
         \"rule\":\"allow 1 (line 2)\"}"
    );
}

#[test]
fn every_event_is_one_line_of_json_whatever_a_peer_has_sent() {
    let mut service = service();
    let mut lines = Vec::new();
    let regions = vec![wanted("kv/index", &[OpType::Read]), wanted("no", &[OpType::Read])];
    lines.extend(service.answer(after(1), &client(), &request(regions)).events);
    // A name that would end the text, and the line, if it were written as it is.
    let injected =
        b"\xa5\0\x01\x01\x09\x02\x81\x44\x0a\0\0\x01\x03\x07\x04\x81\xa2\0\x62\"\n\x01\x81\x01";
    lines.extend(service.handle(after(1), &client(), injected).events);
    let region = name("kv/index");
    lines.push(service.remove(after(2), &region).unwrap());
    let names: Vec<String> =
        lines.iter().map(|event| line(event)["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["granted", "denied", "malformed", "removed"]);
    let why = line(&lines[2])["why"].as_str().unwrap().to_owned();
    assert!(why.contains("regions[0].name") && why.contains("'\"'"), "{why}");
    for (at, event) in lines.iter().enumerate() {
        assert_eq!(line(event)["sequence"], at as u64 + 2);
    }
    let what = What::Malformed { why: Malformed::Length { len: 0 } };
    let event = Event { what, ..lines[0].clone() };
    assert!(line(&event)["why"].as_str().unwrap().contains("0 octets"));
}
