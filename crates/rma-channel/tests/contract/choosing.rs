//! `docs/CHANNELS.md` leads from needs to a channel. What its tables say is what the crate says of
//! itself ([`Kind::ours`], [`choose`]), and what the contract's rows say is there and measured.

use std::path::Path;

use rma_channel::{
    Kind,
    choose::{Choices, Least, Need, choose},
    table::Ours,
};

use rma_contract::kinds::ROWS;

const PAGE: &str = include_str!("../../../../docs/CHANNELS.md");

/// The module of each kind.
const MODULES: [&str; 20] = [
    "send_recv::normal",
    "send_recv::shared",
    "send_recv::bufferless",
    "write_slot::detached_bell",
    "write_slot::inlined_bell",
    "write_slot::immediate",
    "write_slot::reserve_slot",
    "ring_buffer::detached_bell",
    "ring_buffer::immediate",
    "ring_buffer::with_zeroing",
    "ring_buffer::without_zeroing",
    "shared_ring::immediate",
    "shared_ring::with_zeroing",
    "read_slot::detached_bell",
    "read_slot::inlined_bell",
    "read_slot::notify_receiver",
    "read_slot::indirect_read",
    "read_ring::detached_bell",
    "read_ring::inlined_bell",
    "read_ring::notify_receiver",
];

/// The rows of the page's table whose first column is headed so, without their margins.
fn rows_of(heading: &str) -> Vec<Vec<&'static str>> {
    let begin = format!("| {heading} |");
    let table = PAGE.lines().skip_while(|line| !line.starts_with(&begin));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim).collect();
    let rows: Vec<_> = rows.map(cells).collect();
    assert!(!rows.is_empty(), "the page has no table of {heading}");
    rows
}

/// The page has these rows. If not, they are printed as they are to be.
fn assert_has(heading: &str, expected: &[Vec<String>]) {
    let written = rows_of(heading);
    if written != *expected {
        let lines: Vec<_> = expected.iter().map(|row| format!("| {} |", row.join(" | "))).collect();
        panic!("docs/CHANNELS.md is to have in its table of {heading}:\n{}", lines.join("\n"));
    }
}

fn numbers(kinds: impl IntoIterator<Item = Kind>) -> String {
    kinds.into_iter().map(|kind| (kind as u8).to_string()).collect::<Vec<_>>().join(", ")
}

/// Reasons as the page marks them, in the order in which the table has them.
fn reasons() -> Vec<(char, &'static str)> {
    let mut reasons: Vec<(char, &'static str)> = Vec::new();
    for kind in Kind::ALL {
        let reason = kind.ours().reason;
        if !reason.is_empty() && reasons.iter().all(|(_, it)| *it != reason) {
            reasons.push((char::from(b'p' + reasons.len() as u8), reason));
        }
    }
    reasons
}

#[test]
fn table_2_on_the_page_is_the_papers_and_ours() {
    let both = |paper: String, ours: String| {
        if paper == ours { ours } else { format!("{paper} → {ours}") }
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rows = Kind::ALL.map(|kind| {
        let (paper, Ours { offer, done, reason }) = (kind.paper(), kind.ours());
        let module = MODULES[kind as usize - 1];
        assert!(source.join(module.replace("::", "/") + ".rs").exists(), "{module}");
        let requests = |it: &rma_channel::table::Offer| {
            format!("{}/{}", it.send_requests, it.receive_requests)
        };
        let is_measured = ROWS.iter().any(|row| row.kind == kind);
        let why = reasons().iter().find(|(_, it)| *it == reason).map_or('=', |(mark, _)| *mark);
        vec![
            (kind as u8).to_string(),
            kind.to_string(),
            both(paper.half_round_trips.to_string(), offer.half_round_trips.to_string()),
            done.map_or("–".to_owned(), |done| done.to_string()),
            both(requests(&paper), requests(&offer)),
            both(paper.blocking.to_string(), offer.blocking.to_string()),
            both(
                format!("{}/{}", paper.zero_copy_send, paper.zero_copy_receive),
                format!("{}/{}", offer.zero_copy_send, offer.zero_copy_receive),
            ),
            both(paper.variable_size.to_string(), offer.variable_size.to_string()),
            both(paper.memory_of_receiver.to_string(), offer.memory_of_receiver.to_string()),
            why.to_string(),
            format!("`{module}`"),
            if is_measured { "✓" } else { "not measured" }.to_owned(),
        ]
    });
    assert_has("#", &rows);
}

#[test]
fn each_reason_on_the_page_is_the_tables() {
    let expected: Vec<_> =
        reasons().iter().map(|(mark, it)| vec![mark.to_string(), (*it).to_owned()]).collect();
    assert_has("why", &expected);
}

#[test]
fn each_need_on_the_page_has_the_kinds_that_meet_it() {
    let written = rows_of("need");
    let expected = Need::ALL.map(|need| {
        let Choices { kinds, ruled_out } = choose(&[need], Least::Latency);
        let out = ruled_out.into_iter().flat_map(|(_, kinds)| kinds).collect::<Vec<_>>();
        let has = Kind::ALL.into_iter().filter(|kind| kinds.iter().any(|it| it.kind == *kind));
        let has = if out.is_empty() { "all".to_owned() } else { numbers(has) };
        // The needs that others lack are told in words, which no table has.
        let words = written.iter().find(|row| row[0] == need.name()).map_or("?", |row| row[2]);
        vec![need.to_string(), has, words.to_owned()]
    });
    assert_has("need", &expected);
    assert!(written.iter().all(|row| row[2].len() > 20), "each need has a reason");
}

/// The kind that the page leads to first. `None`: to nothing, as it cannot be had.
const PROFILES: [(&str, Option<Kind>); 10] = [
    ("an RPC of two hosts, asleep while idle", Some(Kind::WriteSlotImmediate)),
    ("a stream of messages of many lengths", Some(Kind::RingImmediate)),
    ("64 senders, little memory", Some(Kind::SendRecvShared)),
    ("64 senders, little memory, many lengths", Some(Kind::ReadSlotNotify)),
    ("a broadcast to readers", Some(Kind::ReadSlotDetached)),
    ("bulk, no copy at either end", Some(Kind::WriteSlotImmediate)),
    ("a signal that wakes", Some(Kind::SendRecvBufferless)),
    ("senders who do not trust each other", Some(Kind::WriteSlotImmediate)),
    ("such senders, and little memory", Some(Kind::ReadSlotNotify)),
    ("a broadcast in which no reader waits for a dead one", None),
];

#[test]
fn the_first_choice_for_common_needs_is_what_the_page_says() {
    let mut expected = Vec::new();
    for (row, (profile, first)) in rows_of("you have").iter().zip(PROFILES) {
        let needs: Vec<Need> = row[1]
            .split(", ")
            .map(|name| *Need::ALL.iter().find(|need| need.name() == name).unwrap())
            .collect();
        let kinds: Vec<Kind> =
            choose(&needs, Least::Latency).kinds.iter().map(|it| it.kind).collect();
        assert_eq!(kinds.first(), first.as_ref(), "{profile}");
        let best = if kinds.is_empty() { "none".to_owned() } else { numbers(kinds) };
        expected.push(vec![profile.to_owned(), row[1].to_owned(), best]);
    }
    assert_eq!(expected.len(), PROFILES.len(), "each profile has a row");
    assert_has("you have", &expected);
}

#[test]
fn shared_and_broadcast_kinds_are_those_that_the_contract_opens_so() {
    for row in ROWS {
        let ours = row.kind.ours();
        assert_eq!(row.senders > 1, ours.is_shared(), "{}: senders", row.kind);
        assert_eq!(row.receivers > 1, ours.is_read(), "{}: receivers", row.kind);
    }
}
